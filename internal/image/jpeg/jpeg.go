// Package jpeg decodes JPEG files to the bytes that libjpeg-turbo decodes, by its defaults: integer cosine transforms
// of 13 bits, chroma samples interpolated ("fancy upsampling"), and colors by tables of 16 bits.
//
// Models that see were trained on pixels decoded so. image/jpeg of the standard library repeats chroma samples and
// rounds otherwise: many of its pixels lie some levels off.
//
// Files in reading order: jpeg.go (markers), color.go (planes to pixels), scan.go (entropy-coded data), frame.go,
// idct.go, huffman.go.
//
// Source: ITU-T T.81; libjpeg-turbo 3.1, jidctint.c, jdsample.c, jdcolor.c.
package jpeg

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Markers of T.81, table B.1.
const (
	sof0 = 0xc0 // baseline
	sof1 = 0xc1 // extended, Huffman
	sof2 = 0xc2 // progressive
	dht  = 0xc4
	rst0 = 0xd0
	rst7 = 0xd7
	soi  = 0xd8
	eoi  = 0xd9
	sos  = 0xda
	dqt  = 0xdb
	dri  = 0xdd
	app0 = 0xe0
	app1 = 0xe1
	appE = 0xee
)

// maxScans bounds the work of a progressive file; encoders make a dozen.
const maxScans = 100

var errShort = errors.New("the file is truncated")

// ReadHeader returns what the file says of itself, without decoding any pixel.
func ReadHeader(data []byte) (Header, error) {
	d := decoder{data: data, adobe: -1}
	err := d.read(true)
	return d.Header, err
}

// Decode returns the pixels of a file as RGB, [height, width, 3]. CMYK is turned to RGB as Pillow does. An error of
// stop, asked for each row of blocks and nil for none, ends it.
func Decode(data []byte, stop func() error) (rgb []byte, h Header, err error) {
	d := decoder{data: data, adobe: -1, stop: stop}
	if err := d.read(false); err != nil {
		return nil, d.Header, err
	}
	return d.pixels(), d.Header, nil
}

// read reads markers up to the end of the image, or to the first scan.
func (d *decoder) read(headerOnly bool) error {
	if len(d.data) < 2 || d.data[0] != 0xff || d.data[1] != soi {
		return errors.New("no JPEG file")
	}
	d.data = d.data[2:]
	for {
		m, segment, err := d.segment()
		switch {
		case err == errShort && d.scans > 0 && d.complete() && !d.progressive: // only the end's marker is missing
			return nil
		case err != nil:
			return err
		case m == eoi:
			if d.scans == 0 || !d.complete() {
				return errors.New("the image ends before its pixels")
			}
			return nil
		case m == sos && headerOnly:
			return nil
		}
		if err := d.marker(m, segment); err != nil {
			return err
		}
	}
}

// segment returns the next marker, and the bytes belonging to the marker.
func (d *decoder) segment() (marker byte, segment []byte, err error) {
	for { // bytes outside segments are skipped, as libjpeg does
		for len(d.data) > 0 && d.data[0] != 0xff {
			d.data = d.data[1:]
		}
		for len(d.data) > 0 && d.data[0] == 0xff {
			d.data = d.data[1:]
		}
		if len(d.data) == 0 {
			return 0, nil, errShort
		}
		m := d.data[0]
		d.data = d.data[1:]
		switch {
		case m == 0 || m == 1 || m >= rst0 && m <= rst7:
			continue
		case m == soi:
			return 0, nil, errors.New("an image within the image")
		case m == eoi:
			return m, nil, nil
		}
		if len(d.data) < 2 {
			return 0, nil, errShort
		}
		n := int(binary.BigEndian.Uint16(d.data))
		if n < 2 {
			return 0, nil, fmt.Errorf("marker %#x has a length of %d", m, n)
		}
		if n > len(d.data) {
			return 0, nil, errShort
		}
		segment, d.data = d.data[2:n], d.data[n:]
		return m, segment, nil
	}
}

func (d *decoder) marker(m byte, b []byte) error {
	switch {
	case m == sof0 || m == sof1 || m == sof2:
		return d.frame(b, m == sof2)
	case m > sof2 && m <= 0xcf && m != dht && m != 0xc8 && m != 0xcc:
		return fmt.Errorf("the image is coded by %s: convert it to a baseline or progressive JPEG file", codings[m])
	case m == dht:
		return d.huffmanTables(b)
	case m == dqt:
		return d.quantTables(b)
	case m == dri:
		if len(b) != 2 {
			return errors.New("the restart interval has no two bytes")
		}
		d.restart = int(binary.BigEndian.Uint16(b))
	case m == sos:
		return d.scan(b)
	case m == app0 && len(b) >= 5 && string(b[:5]) == "JFIF\x00":
		d.jfif = true
	case m == appE && len(b) >= 12 && string(b[:5]) == "Adobe":
		d.adobe = int(b[11])
	case m == app1:
		const exif, xmp = "Exif\x00\x00", "http://ns.adobe.com/xap/1.0/\x00"
		switch {
		case len(b) >= len(exif) && string(b[:len(exif)]) == exif && d.EXIF == nil:
			d.EXIF = b[len(exif):]
		case len(b) >= len(xmp) && string(b[:len(xmp)]) == xmp && d.XMP == nil:
			d.XMP = b[len(xmp):]
		}
	}
	return nil
}

// codings are the codings of T.81 that libjpeg-turbo's defaults do not write and no camera makes.
var codings = map[byte]string{0xc3: "the lossless process", 0xc5: "a differential process",
	0xc6: "a differential process", 0xc7: "a differential process", 0xc9: "arithmetic codes", 0xca: "arithmetic codes",
	0xcb: "arithmetic codes", 0xcd: "arithmetic codes", 0xce: "arithmetic codes", 0xcf: "arithmetic codes"}

// quantTables reads tables of quantization, B.2.4.1.
func (d *decoder) quantTables(b []byte) error {
	for len(b) > 0 {
		wide, id := int(b[0]>>4), b[0]&15
		if wide > 1 || id > 3 || len(b) < 1+64<<wide {
			return errors.New("a broken table of quantization")
		}
		t := new([64]uint16)
		for i, at := range zigzag {
			if wide == 1 {
				t[at] = binary.BigEndian.Uint16(b[1+2*i:])
			} else {
				t[at] = uint16(b[1+i])
			}
		}
		d.quants[id] = t
		b = b[1+64<<wide:]
	}
	return nil
}

// huffmanTables reads tables of codes.
func (d *decoder) huffmanTables(b []byte) (err error) {
	for len(b) > 0 {
		class, id := b[0]>>4, b[0]&15
		if class > 1 || id > 3 {
			return errors.New("a broken table of codes")
		}
		if d.huffmans[class][id], b, err = readHuffman(b[1:]); err != nil {
			return err
		}
	}
	return nil
}
