package server

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat"
)

// pictureKinds are the types of the parts with a picture, in chat and in responses.
var pictureKinds = []string{"image_url", "input_image"}

// isPicture reports whether parts of a type are pictures, in one of the APIs.
func isPicture(kind string) bool { return kind == "image" || slices.Contains(pictureKinds, kind) }

// misplaced returns the problem of a picture in a message of the system or of the assistant.
func misplaced(param string) *problem {
	return unsupported(param, "%s: a picture stands in a message of the user or in a result of a tool: move it there",
		param)
}

// pictureTypes are the types of files of pictures.
var pictureTypes = []string{"image/png", "image/jpeg", "image/jpg", "image/webp", "image/gif", "image/bmp"}

// readPicture reads a part of pictureKinds: its image_url is a URL, or an object with a URL.
func readPicture(p *fields) karat.Image {
	p.lacks("file_id")
	o, name := p, "image_url"
	if raw := p.values[name]; len(raw) > 0 && raw[0] == '{' {
		o, name = p.object(name), "url"
	}
	// the size of pictures is the model's
	if detail := o.oneOf("detail", "auto", "low", "high", "original"); detail != "" && detail != "auto" {
		o.hints.add(o.path + "detail")
	}
	x := readPictureURL(o, name)
	if o != p {
		o.done()
	}
	return x
}

// readPictureURL reads a picture of a data: URL, or fetches a picture from a host that the operator lists.
func readPictureURL(f *fields, name string) karat.Image {
	address := f.needText(name)
	scheme, rest, _ := strings.Cut(address, ":")
	if !strings.EqualFold(scheme, "data") {
		if f.sees && f.fetch != nil {
			return karat.Image{Data: f.fetch(f.path+name, address)}
		}
		throw(unsupported(f.path+name, "%s: this server fetches no addresses: pictures come as data: URLs, "+
			"data:image/png;base64,...", f.path+name))
	}
	head, data, _ := strings.Cut(rest, ",")
	kind, coded := strings.CutSuffix(strings.ToLower(head), ";base64")
	kind, _, _ = strings.Cut(kind, ";")
	if !coded || !slices.Contains(pictureTypes, kind) {
		fail(f.path+name, "a data: URL of %.40q, want data:TYPE;base64,... with a type of %s", head,
			strings.Join(pictureTypes, ", "))
	}
	return decodePicture(f, f.path+name, data)
}

// decodePicture returns the picture of a base64 text at a place of the request.
func decodePicture(f *fields, param, text string) karat.Image {
	if !f.sees {
		throw(unsupported(param, "%s: %v: take a model that sees (/v1/models has modalities.vision), or send text "+
			"alone", param, karat.ErrBlind))
	}
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "=\r\n"))
	if err != nil {
		fail(param, "it is not base64: %v", err)
	}
	if len(data) == 0 {
		fail(param, "the picture is empty")
	}
	return karat.Image{Data: data}
}

// unseen returns words in the place of a part of a tool's result that the model cannot see: an agent has no other
// result to send, and a refusal would end its work.
func (f *fields) unseen(what string) karat.Part {
	f.hints.add(strings.TrimSuffix(f.path, "."))
	return karat.Text("[a " + what + ", which this model cannot see]")
}

// toolResult returns a result of a tool. Its pictures come behind its texts.
func toolResult(id, name string, parts []karat.Part) karat.ToolResult {
	r := karat.ToolResult{ID: id, Name: name, Content: join(slices.DeleteFunc(slices.Clone(parts), notText))}
	for _, p := range parts {
		if x, is := p.(karat.Image); is {
			r.Images = append(r.Images, x)
		}
	}
	return r
}

// anthropicPicture reads the source of an image.
func anthropicPicture(b *fields) (x karat.Image) {
	s := b.needObject("source")
	if s.kind("A source", "", "base64", "url") == "url" {
		x = readPictureURL(s, "url")
	} else {
		s.needOneOf("media_type", pictureTypes...)
		x = decodePicture(s, s.path+"data", s.needText("data"))
	}
	s.done()
	return x
}

// ollamaPictures reads images: base64 texts.
func ollamaPictures(f *fields) (parts []karat.Part) {
	for i, text := range f.texts("images", maxParts) {
		parts = append(parts, decodePicture(f, fmt.Sprintf("%simages[%d]", f.path, i), text))
	}
	return parts
}
