package reference_test

import (
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/backendtest"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func() backend.Backend { return reference.Backend{} }, backendtest.Tolerances{SameBits: true})
}
