package server

import (
	"encoding/hex"
	"testing"
)

const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" // the example of W3C's Trace Context

func TestTraceParent(t *testing.T) {
	trace, parent, sampled, ok := traceParent(given)
	if hex.EncodeToString(trace[:]) != given[3:35] || hex.EncodeToString(parent[:]) != given[36:52] || !sampled || !ok {
		t.Errorf("%x %x %v %v", trace, parent, sampled, ok)
	}
	if _, _, sampled, ok := traceParent(given[:53] + "02"); sampled || !ok {
		t.Error("a client that wants no trace")
	}
	if _, _, _, ok := traceParent("01" + given[2:] + "-more"); !ok {
		t.Error("a later version may have more behind")
	}
	for _, bad := range []string{"", "00", "ff" + given[2:], given + "-more", given[:54], given + "0", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033310-01"} {
		if trace, parent, _, ok := traceParent(bad); ok {
			t.Errorf("%q: %x %x", bad, trace, parent)
		}
	}
}

func FuzzTraceParent(f *testing.F) {
	f.Add(given)
	f.Add("01-" + given[3:] + "-x")
	f.Fuzz(func(t *testing.T, header string) {
		trace, parent, _, ok := traceParent(header)
		if ok && (trace == [16]byte{} || parent == [8]byte{} || header[3:35] != hex.EncodeToString(trace[:]) || header[36:52] != hex.EncodeToString(parent[:])) {
			t.Errorf("%q: %x %x", header, trace, parent)
		}
	})
}
