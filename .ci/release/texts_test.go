package main

import (
	"slices"
	"testing"
)

// TestManPage: requests of roff in a help are text, and each section and each line is there.
func TestManPage(t *testing.T) {
	const help = "Run runs a model\n\n.dots and 'quotes\n\nUsage:\n  karat run [MODEL]\n\nFlags:\n  -n, --tokens tokens   maximum \\n\n"
	const want = `.TH "KARAT-RUN" 1 "" "karat 1" "User Commands"
.SH NAME
karat\-run \- Run a model
.SH DESCRIPTION
.nf
Run runs a model
.sp
\&.dots and 'quotes
.fi
.SH USAGE
.nf
  karat run [MODEL]
.fi
.SH FLAGS
.nf
  \-n, \-\-tokens tokens   maximum \en
.fi
`
	if got := manPage("karat-run", "Run a model", "karat 1", help); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got := subcommands("x\n\nCommands:\n  ablate   Set values\n  lab      Look\n\n\"karat\" has more.\n  no more\n")
	if !slices.Equal(got, [][2]string{{"ablate", "Set values"}, {"lab", "Look"}}) {
		t.Errorf("subcommands: %q", got)
	}
}
