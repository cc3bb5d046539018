package karat

import (
	"context"
	"errors"

	"github.com/karat-run/karat/internal/hub/local"
)

// PullOptions are options of Pull. The zero value is usable.
type PullOptions struct {
	Name        string // of the model in the store; "" is the reference's, such as Qwen3-0.6B:Q4_K_M
	Token       string // for Hugging Face; "" is HF_TOKEN, or the file of Hugging Face's programs
	Endpoint    string // address of Hugging Face, or of a mirror; "" is HF_ENDPOINT, or https://huggingface.co
	RateLimit   int64  // maximum bytes a second; 0 is no limit
	Connections int    // parallel downloads of a file; 0 is 4

	// Progress is called with the bytes present and their total, -1 if unknown. Progress may be nil. Several goroutines
	// may call Progress at once.
	Progress func(done, total int64)
	// Note is called with messages for the user, such as about a server without an answer. Note may be nil.
	Note func(text string)
}

// PulledModel is a model of the store.
type PulledModel struct {
	Name     string // for Load
	Path     string // of its file, or of its folder
	Source   string // the reference of the pull
	Revision string // commit or digest there, if any
	License  string // in the publisher's words, if any
	Bytes    int64
}

// Pull downloads a model into the store of "karat pull", from where Load opens it by its name. A reference has a form
// of
//
//	hf:ORG/NAME-GGUF:Q4_K_M    a GGUF file of Hugging Face, by its quantization or its path
//	hf:ORG/NAME@REVISION       a folder of Hugging Face, of a branch, tag or commit
//	oci://REGISTRY/NAME:TAG    a model in a registry, as Docker and Ollama keep them
//	https://HOST/FILE.gguf     a file
//
// ORG/NAME, hf.co/ORG/NAME and https://huggingface.co/ORG/NAME are also Hugging Face's. Pull verifies files by the
// server's SHA-256. Bytes downloaded before the end of ctx, or before an error, are kept for the next Pull.
//
// Pull needs import _ "github.com/karat-run/karat/pull" in the program. Without the import no HTTP is linked.
func Pull(ctx context.Context, reference string, o PullOptions) (*PulledModel, error) {
	switch {
	case ctx == nil:
		return nil, errNilContext
	case local.Puller == nil:
		return nil, errors.New(`Pull needs import _ "github.com/karat-run/karat/pull" in the program`)
	}
	m, err := local.Puller(ctx, reference, local.PullOptions(o))
	return (*PulledModel)(m), err
}
