package hub

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestC8DiskFull: a disk that is full ends a pull, which is not tried again, and keeps what has come (incident C8).
func TestC8DiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		golden.Lacking(t, err)
	}
	defer full.Close()
	f := &fetcher{client: &client{patience: time.Hour}, limit: new(limiter)}
	a := &http.Response{Body: io.NopCloser(bytes.NewReader(noise(1000, 1))), Request: &http.Request{URL: &url.URL{Host: "h"}}}
	tries := 0
	err = retry(t.Context(), func(ctx context.Context) (bool, error) {
		tries++
		_, err := f.copy(ctx, a, full, 0, 1000, nil)
		return false, err
	})
	refused(t, err, "no space left on device: make room and pull again, it goes on where it is")
	if tries != 1 || f.done.Load() != 0 {
		t.Errorf("%d tries, %d bytes", tries, f.done.Load())
	}
}
