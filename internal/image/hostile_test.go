package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestHostile: damaged and lying files are errors or pictures within the limits, and take no more memory than their bytes
// and their announced pixels deserve.
func TestHostile(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	// put returns a file with other bytes at a place, counted behind a mark
	put := func(name, mark string, at int, bytes ...byte) []byte {
		data := read(name)
		i := strings.Index(string(data), mark)
		if i < 0 {
			t.Fatalf("%s has no %q", name, mark)
		}
		copy(data[i+len(mark)+at:], bytes)
		if mark == "IHDR" { // else the checksum alone is refused
			binary.BigEndian.PutUint32(data[i+17:], crc32.ChecksumIEEE(data[i:i+17]))
		}
		return data
	}
	big := []byte{0x7f, 0xff, 0xff, 0xff}
	png, jpg := read("grey.png"), read("plain.jpg")
	frame := "\xff\xc0\x00\x11\x08"
	bmp := func(at int, v uint32) []byte {
		data := bytes.Clone(read("grey.bmp"))
		binary.LittleEndian.PutUint32(data[at:], v)
		return data
	}
	files := map[string][]byte{
		"PNG, width of 2^31": put("grey.png", "IHDR", 0, big...), "PNG, height of 2^31": put("grey.png", "IHDR", 4, big...),
		"PNG, a side of 65,537": put("grey.png", "IHDR", 0, 0, 1, 0, 1, 0, 0, 0, 1),
		"PNG, width 0":          put("grey.png", "IHDR", 0, 0, 0, 0, 0), "PNG, 3 bits": put("grey.png", "IHDR", 8, 3),
		"PNG, colour type 9": put("grey.png", "IHDR", 9, 9), "PNG, damaged rows": put("grey.png", "IDAT", 4, 0xaa, 0xaa, 0xaa),
		"PNG, a chunk of 2 GiB": put("grey.png", "\r\n\x1a\n", 0, big...), "PNG, cut": png[:len(png)/2], "PNG, the head": png[:8],
		"JPEG, 65535 pixels high": put("plain.jpg", frame, 0, 0xff, 0xff, 0xff, 0xff), "JPEG, height 0": put("plain.jpg", frame, 0, 0, 0),
		"JPEG, no components": put("plain.jpg", frame, 4, 0), "JPEG, factors of 15": put("plain.jpg", frame, 6, 0xff),
		"JPEG, factors of 0": put("plain.jpg", frame, 6, 0), "JPEG, table 200": put("plain.jpg", frame, 7, 200),
		"JPEG, codes beyond all":     put("plain.jpg", "\xff\xc4", 3, bytes.Repeat([]byte{0xff}, 16)...),
		"JPEG, a segment of 0 bytes": put("plain.jpg", "\xff\xdb", 0, 0, 0), "JPEG, cut": jpg[:len(jpg)/3],
		"JPEG, 10,000 scans": append(append(bytes.Clone(jpg[:len(jpg)-2]), bytes.Repeat([]byte("\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"), 10000)...), 0xff, 0xd9),
		"GIF, 65535x65535":   put("grey.gif", "GIF8", 2, 0xff, 0xff, 0xff, 0xff),
		"GIF, cut":           read("grey.gif")[:40],
		"GIF, codes of 200 bits": func() []byte {
			data := read("grey.gif")
			i := bytes.LastIndexByte(data[:len(data)-1], ',')
			data[i+10] = 200
			return data
		}(),
		"BMP, 2^31 wide": bmp(18, 0x7fffffff), "BMP, the least height": bmp(22, 0x80000000), "BMP, pixels beyond the end": bmp(10, 0xfffffff0),
		"BMP, 2^31 colours": bmp(46, 0x7fffffff), "BMP, unknown compression": bmp(30, 77),
		"WebP, a size of 4 GiB": put("lossless.webp", "RIFF", 0, 0xff, 0xff, 0xff, 0xff), "WebP, 16384x16384": put("lossless.webp", "VP8L", 5, 0xff, 0xff, 0xff, 0x0f),
		"WebP, cut": read("lossy-33x17-80.webp")[:60], "nothing": {}, "text": []byte("<svg onload=alert(1)>"), "TIFF": []byte("II*\x00\x08\x00\x00\x00"),
	}
	for name, data := range files {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := Decode(data, Limits{})
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes of memory for a file of %d", name, n, len(data))
		}
		switch {
		case strings.Contains(name, "65,537") && !errors.Is(err, ErrLarge), err != nil && len(err.Error()) < 10:
			t.Errorf("%s: %v", name, err)
		case err == nil && (m.Width > 1000 || m.Height > 1000 || len(m.Pix) != 3*m.Width*m.Height):
			t.Errorf("%s: %dx%d pixels, %d bytes", name, m.Width, m.Height, len(m.Pix))
		case err == nil:
			t.Logf("%s: read, %dx%d", name, m.Width, m.Height)
		default:
			t.Logf("%s: %v", name, err)
		}
	}
	if len(files) < 30 {
		t.Errorf("%d files", len(files))
	}
}

// TestStopped: a decoder ends with the error of stop, not only after the whole file.
func TestStopped(t *testing.T) {
	names, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the client has gone")
	seen := map[string]bool{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if kind := filepath.Ext(name); err != nil || seen[kind] || !strings.Contains(".jpg.png.webp.gif.bmp", kind) {
			continue
		} else {
			seen[kind] = true
		}
		if _, err := Decode(data, Limits{Stop: func() error { return gone }}); !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
		asked := 0
		if _, err := Decode(data, Limits{Stop: func() error { asked++; return nil }}); err != nil || asked == 0 {
			t.Errorf("%s: asked %d times: %v", name, asked, err)
		}
	}
	if len(seen) != 5 {
		t.Errorf("formats %v", seen)
	}
}

// TestTransparentGrey: a level of 16 bits that tRNS makes transparent changes no pixel, as in Pillow.
func TestTransparentGrey(t *testing.T) {
	g := image.NewGray16(image.Rect(0, 0, 3, 1))
	for i, v := range []uint16{7, 255, 9000} {
		g.SetGray16(i, 0, color.Gray16{Y: v})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, g); err != nil {
		t.Fatal(err)
	}
	const header = 8 + 25
	chunk := []byte("tRNS\x00\x07")
	with := binary.BigEndian.AppendUint32(slices.Clone(b.Bytes()[:header]), 2)
	with = binary.BigEndian.AppendUint32(append(with, chunk...), crc32.ChecksumIEEE(chunk))
	with = append(with, b.Bytes()[header:]...)
	for _, data := range [][]byte{b.Bytes(), with} {
		m, err := Decode(data, Limits{})
		if err != nil || !bytes.Equal(m.Pix, []byte{7, 7, 7, 255, 255, 255, 255, 255, 255}) {
			t.Errorf("%v, %v", m, err)
		}
	}
}
