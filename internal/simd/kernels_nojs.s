//go:build !(js && karat_wasmsimd)

#include "textflag.h"

// The kernels that the tier wasm has, and one of the architectures.
#define NONE(kernel) TEXT kernel(SB), NOSPLIT, $0; UNDEF

#ifndef GOARCH_amd64
NONE(·weaveVec)
NONE(·weaveHalvesVec)
NONE(·weaveBitsVec)
NONE(·weaveWordsVec)
NONE(·weaveBytesVec)
NONE(·weaveScalesVec)
NONE(·addRowVec)
NONE(·addPairVec)
#endif
#ifndef GOARCH_arm64
NONE(·addPanelVec)
#endif
NONE(·hasKernels)
NONE(·record)
NONE(·nextLane)
NONE(·joinLanes)
NONE(·clearVec)
NONE(·copyRowsVec)
NONE(·addChunksVec)
NONE(·expDoublesVec)
NONE(·attendVec)
