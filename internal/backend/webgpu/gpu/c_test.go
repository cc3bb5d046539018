//go:build !nogpu && ((linux && !android) || darwin) && (amd64 || arm64)

package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestLibraryErrors: what KARAT_WEBGPU_LIB names and is no library of webgpu.h is an error
// that says so, not a crash.
func TestLibraryErrors(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.so")
	if err := os.WriteFile(text, []byte("not a library\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(dir, "short.so")
	if err := os.WriteFile(short, []byte("\x7fELF\x02\x01\x01"), 0o666); err != nil {
		t.Fatal(err)
	}
	c := "libm.so.6"
	if runtime.GOOS == "darwin" {
		c = "/usr/lib/libSystem.B.dylib"
	}
	half, cut := filepath.Join(dir, "half.so"), "no such file"
	if b, err := os.ReadFile("/proc/self/exe"); err == nil {
		cut = "the file is cut off"
		if err := os.WriteFile(half, b[:len(b)/2], 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		half:                          cut,
		filepath.Join(dir, "none.so"): "no such file",
		dir:                           "not a file",
		text:                          "",
		short:                         "",
		"libnothing-of-this-name.so":  "libnothing-of-this-name.so",
		c:                             "neither wgpuGetInstanceCapabilities nor wgpuGetInstanceFeatures is in it",
	} {
		t.Setenv("KARAT_WEBGPU_LIB", path)
		_, err := Adapters()
		if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "KARAT_WEBGPU_LIB: "+path+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := Open(0); !errors.Is(err, ErrNone) {
			t.Errorf("%s: Open: %v", path, err)
		}
	}
}

// TestLibrary: an adapter of KARAT_WEBGPU_LIB's says which library it is of.
func TestLibrary(t *testing.T) {
	path := os.Getenv("KARAT_WEBGPU_LIB")
	if path == "" {
		t.Skip("KARAT_WEBGPU_LIB names no shared library of webgpu.h")
	}
	all, err := Adapters()
	if errors.Is(err, ErrNone) {
		golden.Lacking(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Library != filepath.Base(path) || a.Name == "" || a.Limits.Groups != standard.Groups {
			t.Errorf("%+v", a)
		}
	}
}

// TestUncaptured: what the library has against a call outside of all scopes ends what runs.
func TestUncaptured(t *testing.T) {
	if os.Getenv(libraryName) == "" {
		t.Skip("KARAT_WEBGPU_LIB names no shared library of webgpu.h")
	}
	opened := open(t)
	d := opened.(*device).binding.(*cDevice)
	d.call("wgpuBufferRelease", d.call("wgpuDeviceCreateBuffer", d.device, unsafe.Pointer(&bufferDescriptor{usage: usageMapRead | usageMapWrite, size: 4})))
	d.call("wgpuInstanceProcessEvents", d.instance)
	if _, err := opened.NewBuffer("next", 4); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "MapWrite") {
		t.Errorf("%v", err)
	}
}

// TestClosed: a device that was closed says so.
func TestClosed(t *testing.T) {
	path := os.Getenv("KARAT_WEBGPU_LIB")
	if path == "" {
		t.Skip("KARAT_WEBGPU_LIB names no shared library of webgpu.h")
	}
	d, err := cOpen(path, 0)
	if errors.Is(err, ErrNone) {
		golden.Lacking(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Run(&List{}); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("%v", err)
	}
}

// TestAnswers: an answer counts once, and none is waited for after it was taken back.
func TestAnswers(t *testing.T) {
	id := expect()
	tell(id, answer{status: 1})
	tell(id, answer{status: 2})
	if a := told(id); !a.done || a.status != 1 {
		t.Errorf("%+v", a)
	}
	forget(id)
	tell(id, answer{status: 3}) // is nobody's
	if a := told(id); a.done {
		t.Errorf("%+v after it was taken back", a)
	}
}

// TestText reads strings with a length, and strings that end in a zero.
func TestText(t *testing.T) {
	s := "abc\x00d"
	for want, v := range map[string]stringView{"abc\x00d": view(s), "abc": {view(s).data, ^uint64(0)}, "": {}, "ab": {view(s).data, 2}} {
		if got := v.text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAdvised: where Vulkan's loader finds no driver, the error gives advice.
func TestAdvised(t *testing.T) {
	for text, more := range map[string]bool{"vulkan: vkCreateInstance failed: -9": true, "vulkan: vkCreateInstance failed: -1": false} {
		if got := advised(text); !strings.HasPrefix(got, text) || strings.Contains(got, "install") != more {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	const dlopen = `vulkan: failed to initialize: failed to load Vulkan library libvulkan.so.1: dlopen failed: libvulkan.so.1: cannot open shared object file`
	if got := advised(dlopen); got != "the Vulkan loader (libvulkan.so.1) is not installed; on Debian and Ubuntu: apt install libvulkan1" {
		t.Errorf("without the loader: %q", got)
	}
}
