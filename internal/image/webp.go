package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"

	"golang.org/x/image/webp"
)

// chunk returns the body of the first RIFF chunk of a kind in a WebP file; nil for none.
func chunk(data []byte, kind string) []byte {
	if len(data) < 12 {
		return nil
	}
	return within(data[12:], kind)
}

// within returns the body of the first of chunks of a kind.
func within(data []byte, kind string) []byte {
	for len(data) >= 8 {
		n := int64(binary.LittleEndian.Uint32(data[4:]))
		if n > int64(len(data)-8) {
			n = int64(len(data) - 8)
		}
		if string(data[:4]) == kind {
			return data[8 : 8+n]
		}
		data = data[min(8+n+n&1, int64(len(data))):]
	}
	return nil
}

func int24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// sizeOfWebP returns the size of the canvas.
func sizeOfWebP(data []byte) (width, height int, err error) {
	if b := chunk(data, "VP8X"); len(b) >= 10 {
		return int24(b[4:]) + 1, int24(b[7:]) + 1, nil
	}
	return sizeOf(func(r *bytes.Reader) (image.Config, error) { return webp.DecodeConfig(r) }, data)
}

// decodeWebP returns a still, or the first frame of an animation on a black canvas.
func decodeWebP(data []byte, stop func() error) (*Image, error) {
	w, h, err := sizeOfWebP(data)
	if err != nil {
		return nil, err
	}
	frame := chunk(data, "ANMF")
	if frame == nil {
		return decodeStill(data, w, h, stop)
	}
	if len(frame) < 16 {
		return nil, errors.New("a broken frame")
	}
	x, y, fw, fh := 2*int24(frame), 2*int24(frame[3:]), int24(frame[6:])+1, int24(frame[9:])+1
	if x+fw > w || y+fh > h {
		return nil, errors.New("the first frame leaves the canvas")
	}
	still, err := decodeStill(stillOf(frame, fw, fh), fw, fh, stop)
	if err != nil {
		return nil, err
	}
	canvas := newImage(w, h)
	canvas.paste(still, x, y)
	return canvas, nil
}

// stillOf returns a file of an animation's frame alone.
func stillOf(frame []byte, w, h int) []byte {
	body := frame[16:]
	b := []byte("RIFF....WEBP")
	if within(body, "ALPH") != nil {
		b = append(b, "VP8X\x0a\x00\x00\x00\x10\x00\x00\x00"...) // with alpha
		b = append(b, byte(w-1), byte((w-1)>>8), byte((w-1)>>16), byte(h-1), byte((h-1)>>8), byte((h-1)>>16))
	}
	b = append(b, body...)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
	return b
}

// decodeStill returns the picture of a file whose header says its size.
func decodeStill(data []byte, width, height int, stop func() error) (*Image, error) {
	const mask = 1<<14 - 1
	var w, h int
	if b := chunk(data, "VP8 "); len(b) >= 10 {
		w, h = int(binary.LittleEndian.Uint16(b[6:])&mask), int(binary.LittleEndian.Uint16(b[8:])&mask)
	} else if b := chunk(data, "VP8L"); len(b) >= 5 {
		bits := int(binary.LittleEndian.Uint32(b[1:]))
		w, h = bits&mask+1, bits>>14&mask+1
	}
	if w != width || h != height { // before the library makes memory for the picture
		return nil, fmt.Errorf("%dx%d pixels, the header says %dx%d", w, h, width, height)
	}
	src, err := webp.Decode(newSource(data, stop))
	if err != nil {
		return nil, err
	}
	switch src := src.(type) {
	case *image.YCbCr:
		return fromVP8(src), nil
	case *image.NYCbCrA:
		return fromVP8(&src.YCbCr), nil
	}
	return rgbOf(src), nil
}

// fromVP8 returns the pixels of a lossy picture. Chroma samples are interpolated by 9, 3, 3 and 1 sixteenths from the
// four around a pixel, each sample in the middle of its four pixels. (libwebp, src/dsp/upsampling.c and yuv.h)
func fromVP8(src *image.YCbCr) *Image {
	m := newImage(src.Rect.Dx(), src.Rect.Dy())
	across, down := (m.Width+1)/2, (m.Height+1)/2
	for y := range m.Height {
		near := min(y/2, down-1) * src.CStride
		far := min(max(y/2-1+y%2*2, 0), down-1) * src.CStride
		for x := range m.Width {
			i, j := x/2, min(max(x/2-1+x%2*2, 0), across-1)
			u := chroma(src.Cb[near+i], src.Cb[near+j], src.Cb[far+i], src.Cb[far+j])
			v := chroma(src.Cr[near+i], src.Cr[near+j], src.Cr[far+i], src.Cr[far+j])
			p := m.Pix[3*(y*m.Width+x):][:3]
			p[0], p[1], p[2] = fromYUV(int32(src.Y[y*src.YStride+x]), u, v)
		}
	}
	return m
}

// chroma returns a pixel's chroma from the sample over the pixel, the nearest sample beside it, the nearest above or
// below, and the sample across. The diagonals are rounded first, as libwebp does.
func chroma(near, side, far, across byte) int32 {
	a, b, c, d := int32(near), int32(side), int32(far), int32(across)
	diagonal := (a + b + c + d + 2*(b+c) + 8) >> 3
	return (diagonal + a) >> 1
}

// fromYUV returns a pixel of luma and chroma in studio range. Factors have 14 bits behind the point, and 8 of them are
// dropped before the sum.
func fromYUV(y, u, v int32) (r, g, b byte) {
	high := func(x, factor int32) int32 { return x * factor >> 8 }
	clip := func(x int32) byte { return byte(min(max(x>>6, 0), 255)) }
	l := high(y, 19077)
	return clip(l + high(v, 26149) - 14234), clip(l - high(u, 6419) - high(v, 13320) + 8708),
		clip(l + high(u, 33050) - 17685)
}
