package image

import (
	"bytes"
	"encoding/binary"
	"regexp"

	"github.com/karat-run/karat/internal/image/jpeg"
)

// upright is the orientation of files without one.
func upright([]byte) int { return 1 }

func orientationOfJPEG(data []byte) int {
	h, err := jpeg.ReadHeader(data)
	if err != nil {
		return 1
	}
	return orientation(h.EXIF, h.XMP)
}

// orientationOfPNG reads the chunks eXIf, and iTXt of an XMP packet.
func orientationOfPNG(data []byte) int {
	var exif, xmp []byte
	for data = data[8:]; len(data) >= 12; {
		n := int64(binary.BigEndian.Uint32(data))
		if n > int64(len(data)-12) {
			break
		}
		switch body := data[8 : 8+n]; string(data[4:8]) {
		case "eXIf":
			exif = body
		case "iTXt":
			if bytes.HasPrefix(body, []byte("XML:com.adobe.xmp\x00")) {
				xmp = body
			}
		}
		data = data[12+n:]
	}
	return orientation(exif, xmp)
}

func orientationOfWebP(data []byte) int {
	exif, xmp := chunk(data, "EXIF"), chunk(data, "XMP ")
	return orientation(bytes.TrimPrefix(exif, []byte("Exif\x00\x00")), xmp)
}

var xmpOrientation = regexp.MustCompile(`tiff:Orientation(?:="|>)([0-9])`)

// orientation returns the orientation in EXIF, else in XMP, 1 to 8; 1 is upright.
func orientation(exif, xmp []byte) int {
	if o := exifOrientation(exif); o > 0 {
		return o
	}
	if m := xmpOrientation.FindSubmatch(xmp); m != nil && m[1][0] >= '1' && m[1][0] <= '8' {
		return int(m[1][0] - '0')
	}
	return 1
}

// exifOrientation returns the tag 0x0112 of the first directory of a TIFF structure; 0 for none.
func exifOrientation(b []byte) int {
	if len(b) < 8 {
		return 0
	}
	var order binary.ByteOrder = binary.LittleEndian
	if b[0] == 'M' {
		order = binary.BigEndian
	}
	at := int64(order.Uint32(b[4:]))
	if at+2 > int64(len(b)) {
		return 0
	}
	n := int(order.Uint16(b[at:]))
	for b = b[at+2:]; n > 0 && len(b) >= 12; n, b = n-1, b[12:] {
		if order.Uint16(b) == 0x0112 {
			if o := int(order.Uint16(b[8:])); o >= 1 && o <= 8 {
				return o
			}
			return 0
		}
	}
	return 0
}

// turn returns the picture upright, from an orientation of EXIF.
func (m *Image) turn(orientation int) *Image {
	if orientation == 1 {
		return m
	}
	w, h := m.Width, m.Height
	to := newImage(w, h)
	if orientation > 4 {
		to = newImage(h, w)
	}
	for y := range to.Height {
		for x := range to.Width {
			var i, j int // column and row of m
			switch orientation {
			case 2:
				i, j = w-1-x, y
			case 3:
				i, j = w-1-x, h-1-y
			case 4:
				i, j = x, h-1-y
			case 5:
				i, j = y, x
			case 6:
				i, j = y, h-1-x
			case 7:
				i, j = w-1-y, h-1-x
			case 8:
				i, j = w-1-y, x
			}
			copy(to.Pix[3*(y*to.Width+x):][:3], m.Pix[3*(j*w+i):])
		}
	}
	return to
}
