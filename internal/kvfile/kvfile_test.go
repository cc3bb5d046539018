package kvfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func sample() *File {
	return &File{Program: "karat", Model: "abc", Element: 2, Tokens: []int32{2, 5, 7}, Held: 2,
		Stores: []Store{{Layer: 0, Heads: 1, Dim: 2, Values: 2, Data: bytes.Repeat([]byte{1}, 16)}, {Layer: 1, Heads: 1, Dim: 2, Values: 1, Window: 1, From: 1, Data: bytes.Repeat([]byte{2}, 6)},
			{Layer: 1, Heads: 1, Dim: 3, Data: bytes.Repeat([]byte{3}, 12)}},
		States: []State{{Size: 1, Row: 2, Rows: 2, Data: bytes.Repeat([]byte{1, 2, 3, 4}, 5)}}}
}

func written(t testing.TB, f *File) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sealed gives bytes the checksum that they should have.
func sealed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(slices.Clone(body), sum[:]...)
}

// TestRoundTrip: what is written is read, and every changed or missing byte is found.
func TestRoundTrip(t *testing.T) {
	data := written(t, sample())
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Same(sample()); err != nil || !slices.Equal(f.Tokens, []int32{2, 5, 7}) {
		t.Errorf("%+v, %v", f, err)
	}
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 0x10
		if _, err := Parse(bad); err == nil {
			t.Errorf("byte %d changed: no error", i)
		}
		if _, err := Parse(data[:i]); err == nil {
			t.Errorf("%d bytes: no error", i)
		}
	}
}

// TestA14Tampered is incident A14 (CVE-2026-43629): a file that somebody has sealed again lies about its sizes, and is refused.
func TestA14Tampered(t *testing.T) {
	data := written(t, sample())
	body := data[:len(data)-sha256.Size]
	n := int(binary.LittleEndian.Uint64(body[8:]))
	header := string(body[16 : 16+n])
	for _, x := range [][2]string{
		{`"held":2`, `"held":3`}, {`"held":2`, `"held":-1`}, {`"held":2`, `"held":99999999`}, {`"heads":1`, `"heads":1048576`}, {`"dim":2`, `"dim":9223372036854775807`},
		{`"dim":2`, `"dim":0`}, {`"values":1`, `"values":-1`}, {`"values":0`, `"values":1`}, {`"from":1`, `"from":3`}, {`"from":1`, `"from":-1`}, {`"size":1`, `"size":2`}, {`"size":1`, `"size":-1`}, {`"size":1`, `"size":4611686018427387905`}, {`"rows":2`, `"rows":3`}, {`"rows":2`, `"rows":0`}, {`"row":2`, `"row":4611686018427387905`},
		{`"element_bytes":2`, `"element_bytes":1`}, {`"element_bytes":2`, `"element_bytes":4`}, {`"tokens":[2,5,7]`, `"tokens":[]`}, {`"program"`, `"programme"`}, {`"window":1`, `"window":-1`},
	} {
		changed := strings.Replace(header, x[0], x[1], 1)
		if changed == header {
			t.Fatalf("%s is not in the header", x[0])
		}
		bad := append(binary.LittleEndian.AppendUint64([]byte(magic), uint64(len(changed))), changed...)
		if f, err := Parse(sealed(append(bad, body[16+n:]...))); err == nil {
			t.Errorf("%s: %+v", x[1], f)
		}
	}
	for _, length := range []uint64{0, 1, 1 << 30, 1 << 63, ^uint64(0)} {
		bad := slices.Clone(body)
		binary.LittleEndian.PutUint64(bad[8:], length)
		if _, err := Parse(sealed(bad)); err == nil {
			t.Errorf("header of %d bytes: no error", length)
		}
	}
	if _, err := Parse(sealed(append(slices.Clone(body), 0))); err == nil {
		t.Error("a byte too many: no error")
	}
}

// TestManyStores: stores of two bytes each are refused before they are made.
func TestManyStores(t *testing.T) {
	header := `{"stores":[` + strings.Repeat("{},", 1<<20) + `{}]}`
	data := sealed(append(binary.LittleEndian.AppendUint64([]byte(magic), uint64(len(header))), header...))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Parse(data)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "more than 65536 stores") {
		t.Error(err)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 64 {
		t.Errorf("%d MiB for a file of 3", took)
	}
	if f, err := Parse(written(t, &File{Element: 4, Tokens: []int32{1}, Held: 1, States: []State{{Size: 1, Row: 1, Rows: 1, Data: make([]byte, 8)}}})); err != nil || len(f.Stores) != 0 {
		t.Error(f, err)
	}
}

// FuzzParse: whatever a sealed file says, its parts lie within it.
func FuzzParse(f *testing.F) {
	data := written(f, sample())
	f.Add(data[:len(data)-sha256.Size])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, body []byte) {
		if file, err := Parse(sealed(body)); err == nil {
			total := 0
			for _, s := range file.Stores {
				total += len(s.Data)
			}
			for _, s := range file.States {
				total += len(s.Data)
			}
			if total > len(body) || file.Held > len(file.Tokens) {
				t.Errorf("%d bytes of %d, %d of %d tokens", total, len(body), file.Held, len(file.Tokens))
			}
		}
		_, _ = Parse(body)
	})
}
