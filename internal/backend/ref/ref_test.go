package ref_test

import (
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/backendtest"
	"github.com/karat-run/karat/internal/backend/ref"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func() backend.Backend { return ref.Backend{} }, backendtest.Tolerances{SameBits: true})
}
