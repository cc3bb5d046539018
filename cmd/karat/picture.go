package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/image"
)

// maxImage bounds the file of a picture, in bytes.
const maxImage = 64 << 20

// newImage returns a picture of a file's bytes, checked by the file's header.
func newImage(name, data string) (karat.Image, error) {
	p := karat.Image{Name: name, Data: []byte(data)}
	if len(data) == 0 {
		return p, fmt.Errorf("%s: an empty picture", name)
	}
	if _, _, err := image.Size(p.Data, image.Limits{}); err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// imagePath returns the path of a picture as users write or drop it: ~, a file: address, or a path. Pictures of the
// network are refused.
func imagePath(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.Scheme == "file" && (u.Host == "" || u.Host == "localhost"):
		if path := filepath.FromSlash(u.Path); runtime.GOOS != "windows" {
			return path, nil
		} else { // /C:/a.png
			return strings.TrimPrefix(path, `\`), nil
		}
	case err == nil && slices.Contains([]string{"http", "https", "ftp", "data"}, u.Scheme):
		return "", fmt.Errorf("%s: karat fetches no pictures: save the picture, and give the file's path",
			shorten(text, 60))
	}
	return homePath(text), nil
}

// readImage reads the file of a picture.
func readImage(ctx context.Context, text string) (karat.Image, error) {
	path, err := imagePath(text)
	if err != nil {
		return karat.Image{}, err
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() && !st.IsDir() { // which may never end
		return karat.Image{}, fmt.Errorf("%s: no regular file; - reads standard input", path)
	}
	data, err := awaitRead(ctx, func() (string, error) { return readWhole(path, maxImage) })
	if err != nil {
		return karat.Image{}, err
	}
	return newImage(path, data)
}

// readImages reads pictures. "-" is standard input, which then holds no text.
func (x *call) readImages(paths []string) (all []karat.Part, err error) {
	for _, path := range paths {
		var part karat.Image
		if path == "-" {
			const name = "standard input"
			var data string
			data, err = awaitRead(x.ctx, func() (string, error) { return readAll(x.in, name, maxImage) })
			if err == nil {
				part, err = newImage(name, data)
			}
			x.in = strings.NewReader("")
		} else {
			part, err = readImage(x.ctx, path)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, part)
	}
	return all, nil
}

// addImage keeps a picture for the next message.
func addImage(p *conversation, text string) error {
	switch {
	case text == "":
		return errors.New("/image needs a path")
	case !p.model.Sees():
		return fmt.Errorf("%w; --mmproj names the file for pictures of a GGUF model", karat.ErrBlind)
	}
	if _, err := os.Stat(text); err != nil { // no path as it stands
		text = unshelled(text)
	}
	ctx, stop := p.prompter.interruptible()
	defer stop()
	part, err := readImage(ctx, text)
	if err != nil {
		return err
	}
	p.undo.keep(p.said)
	p.images = append(p.images[:len(p.images):len(p.images)], part)
	return p.tell("%s comes with the next message", oneLine(part.Name))
}

// unshelled returns a word as a shell reads it, without quotes and backslashes: terminals write dropped files so.
func unshelled(word string) string {
	for _, q := range []string{"'", `"`} {
		if rest, ok := strings.CutPrefix(word, q); ok && strings.HasSuffix(rest, q) {
			return strings.TrimSuffix(rest, q)
		}
	}
	if runtime.GOOS == "windows" {
		return word
	}
	return escaped.ReplaceAllString(word, "$1")
}

var (
	escaped = regexp.MustCompile(`\\(.)`)
	// dropped matches the words that may be files dropped on a terminal.
	dropped = regexp.MustCompile(`'[^']+'|"[^"]+"|(?:\\.|[^\s'"\\])+`)
	// pictured matches names of pictures.
	pictured = regexp.MustCompile(`(?i)\.(png|jpe?g|webp|gif|bmp)$`)
)

// cutImages returns the whole paths of pictures in a line, such as a terminal writes of dropped files, and the line
// without them. A path counts if a file is there, and outside commands.
func cutImages(line string) (paths []string, rest string) {
	if name, _, _ := strings.Cut(line, " "); strings.LastIndexByte(name, '/') == 0 {
		return nil, line
	}
	rest = dropped.ReplaceAllStringFunc(line, func(word string) string {
		path, err := imagePath(unshelled(word))
		if err != nil || !filepath.IsAbs(path) || !pictured.MatchString(path) {
			return word
		}
		if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
			return word
		}
		paths = append(paths, path)
		return ""
	})
	if paths == nil {
		return nil, line
	}
	return paths, strings.TrimSpace(rest)
}
