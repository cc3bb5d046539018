//go:build !amd64 && !arm64

package simd

import "unsafe"

// The kernels of kernels_asm.go, none of which the only tier here, generic, calls.

func addVec(_, _, _ []float32)                                            {}
func mulVec(_, _, _ []float32)                                            {}
func scaleVec(_, _ []float32, _ float32)                                  {}
func divideVec(_, _ []float32, _ float32)                                 {}
func addScaledVec(_, _ []float32, _ float32)                              {}
func normVec(_, _, _ []float32, _, _ float32)                             {}
func turnVec(_, _, _, _ []float32)                                        {}
func maxVec([]float32) (top float32)                                      { return }
func loadF16Vec([]float32, []uint16)                                      {}
func loadBF16Vec([]float32, []uint16)                                     {}
func storeF16Vec([]uint16, []float32)                                     {}
func siluVec(_, _ []float32)                                              {}
func geluVec(_, _ []float32)                                              {}
func swigluVec(_, _, _ []float32)                                         {}
func gegluVec(_, _, _ []float32)                                          {}
func softcapVec(_, _ []float32, _ float32)                                {}
func expSumVec(_ *[lanes]float32, _, _ []float32, _ float32)              {}
func addDotsF32Vec(*dotSums, []float32, int, []float32)                   {}
func addDotsF16Vec(*dotSums, []uint16, int, []float32)                    {}
func addDotsBF16Vec(*dotSums, []uint16, int, []float32)                   {}
func sumDotsVec(*[dotRows]float32, *dotSums)                              {}
func scoreKeysVec(_ *scores, _, _ []float32, _, _ int, _ float32)         {}
func addValuesVec(_, _ []float32, _ *float32, _, _ int, _ *[Quad]float32) {}
func addPanelVec(_ []float32, _ *Panel, _ *Acts, _, _ *float32, _ *int32) {}
func quantizeVec(_ []int16, _, _ []float32)                               {}
func groupSumsVec([]float32, *int16, *float32, int)                       {}
func groupInitVec([]int32, *int16, int, int32)                            {}
func unpack4Vec(_, _ []byte)                                              {}
func unpackTableVec(_, _ []byte, _ *[16]byte)                             {}
func unpack41Vec(_, _ []byte)                                             {}
func unpack42Vec(_, _ []byte)                                             {}
func unpack2Vec(_, _ []byte)                                              {}
func unpack21Vec(_, _ []byte)                                             {}
func panelScalesVec([]float32, *uint16, []int8)                           {}
func limitReadVec([]byte, *limitForm)                                     {}
func fetch(unsafe.Pointer, int)                                           {}

// Pause tells the processor that a loop waits for another thread.
func Pause() {}
