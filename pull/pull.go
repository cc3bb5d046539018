// Package pull lets programs download models. A program that imports it for its effect may call Pull of package karat:
//
//	import (
//		"github.com/karat-run/karat"
//		_ "github.com/karat-run/karat/pull"
//	)
//
// It links HTTP and TLS, which takes 2.4 MB.
package pull

import (
	"context"
	"fmt"

	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/internal/hub/local"
)

func init() { local.Puller = pull }

func pull(ctx context.Context, reference string, o local.PullOptions) (*local.Pulled, error) {
	if o.RateLimit < 0 || o.Connections < 0 || o.Connections > 32 {
		return nil, fmt.Errorf("PullOptions: RateLimit is %d, want 0 or more; Connections is %d, want 0 to 32",
			o.RateLimit, o.Connections)
	}
	dir, err := local.DefaultDir()
	if err != nil {
		return nil, err
	}
	s, err := hub.Open(dir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	x := hub.PullOptions{Name: o.Name, Token: o.Token, Endpoint: o.Endpoint, Rate: o.RateLimit, Lines: o.Connections,
		Note: o.Note}
	if o.Progress != nil {
		x.Progress = func(p hub.Progress) { o.Progress(p.Done, p.All) }
	}
	m, err := s.Pull(ctx, reference, x)
	if err != nil {
		return nil, err
	}
	path, err := s.Path(m)
	return &local.Pulled{Name: m.Name, Path: path, Source: m.Source, Revision: m.Revision, License: m.License,
		Bytes: m.Bytes()}, err
}
