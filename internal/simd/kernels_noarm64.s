//go:build !arm64

#include "textflag.h"

// The kernels that arm64 alone has, without those that its tables alone name.
#define NONE(kernel) TEXT kernel(SB), NOSPLIT, $0; UNDEF

NONE(·addPanelSDOT)
