package main

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestFresh(t *testing.T) {
	for name, want := range headers() {
		got, err := os.ReadFile(filepath.Join("../../simd", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is stale (go generate ./internal/simd writes it)", name)
		}
	}
}

// listed returns what Go's assembler lists of a file, with the code.
func listed(t *testing.T, arch, name string) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output() // which a test built with -trimpath does not know
	if err != nil {
		t.Fatal(err)
	}
	include := filepath.Join(strings.TrimSpace(string(root)), "pkg", "include")
	cmd := exec.Command("go", "tool", "asm", "-S", "-p", "a", "-I", "../../simd", "-I", include,
		"-o", filepath.Join(t.TempDir(), "a.o"), name)
	cmd.Env = append(os.Environ(), "GOARCH="+arch)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// assemble returns the bytes, in hexadecimal, that Go's assembler makes of lines
// after a header is included.
func assemble(t *testing.T, arch string, lines []string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "a.s")
	text := "#include \"words_" + arch + ".h\"\nTEXT ·f(SB), 4, $0-0\n\t" + strings.Join(lines, "\n\t") + "\n"
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^\t0x[0-9a-f]{4} ((?:[0-9a-f]{2} )+)`).FindAllStringSubmatch(listed(t, arch, name), -1) {
		b.WriteString(strings.ReplaceAll(m[1], " ", ""))
	}
	return b.String()
}

// golden assembles all lines at once and compares what came of each.
func golden(t *testing.T, arch string, lines, want []string) {
	got := assemble(t, arch, lines)
	for i, w := range want {
		n := min(len(w), len(got))
		if got[:n] != w {
			t.Fatalf("%s is %s, want %s", lines[i], got[:n], w)
		}
		got = got[n:]
	}
	if strings.Trim(got, "0") != "" { // the function is padded
		t.Errorf("%s is left over", got)
	}
}

// TestGoldenAMD64 has the bytes of GNU as 2.40, told to write displacements of
// 32 bits; LDTILECFG's SIB byte it left out where it could, and read.
func TestGoldenAMD64(t *testing.T) {
	var lines, want []string
	for _, c := range []struct{ line, want string }{
		{"LDTILECFG(0, regAX)", "c4e278498420" + "00000000"},
		{"LDTILECFG(-64, regSP)", "c4e278498424" + "c0ffffff"},
		{"LDTILECFG(64, regR12)", "c4c278498424" + "40000000"},
		{"LDTILECFG(64, regR13)", "c4c278498425" + "40000000"},
		{"TILERELEASE", "c4e27849c0"},
		{"TILEZERO(tmm0)", "c4e27b49c0"},
		{"TILEZERO(tmm7)", "c4e27b49f8"},
		{"TILELOADD(0, regSI, regR8, tmm3)", "c4a27b4b9c06" + "00000000"},
		{"TILELOADD(1024, regR13, regBX, tmm7)", "c4c27b4bbc1d" + "00040000"},
		{"TILELOADD(-1024, regBP, regR15, tmm0)", "c4a27b4b843d" + "00fcffff"},
		{"TILELOADD(3*64, regR9, regR10, tmm6)", "c4827b4bb411" + "c0000000"},
		{"TILELOADDT1(0, regSI, regR8, tmm3)", "c4a2794b9c06" + "00000000"},
		{"TILESTORED(tmm5, 16, regDI, regCX)", "c4e27a4bac0f" + "10000000"},
		{"TDPBF16PS(tmm2, tmm1, tmm0)", "c4e26a5cc1"},
		{"TDPBF16PS(tmm0, tmm3, tmm4)", "c4e27a5ce3"},
		{"TDPBSUD(tmm2, tmm1, tmm0)", "c4e26a5ec1"},
		{"TDPBUUD(tmm0, tmm3, tmm4)", "c4e2785ee3"},
		{"TDPBSSD(tmm2, tmm1, tmm0)", "c4e26b5ec1"},
		{"TDPBUSD(tmm0, tmm3, tmm4)", "c4e2795ee3"},
	} {
		lines, want = append(lines, c.line), append(want, c.want)
	}
	golden(t, "amd64", lines, want)
}

// TestGoldenARM64 has the words of GNU as 2.40, whose line each comment is.
func TestGoldenARM64(t *testing.T) {
	var lines, want []string
	for _, c := range []struct {
		line string
		want uint32
	}{
		{"VFADD_S4(v1, v12, v31)", 0x4e21d59f},          // fadd v31.4s, v12.4s, v1.4s
		{"VFSUB_S4(v1, v12, v31)", 0x4ea1d59f},          // fsub v31.4s, v12.4s, v1.4s
		{"VFMUL_S4(v1, v12, v31)", 0x6e21dd9f},          // fmul v31.4s, v12.4s, v1.4s
		{"VFDIV_S4(v1, v12, v31)", 0x6e21fd9f},          // fdiv v31.4s, v12.4s, v1.4s
		{"VFMAX_S4(v1, v12, v31)", 0x4e21f59f},          // fmax v31.4s, v12.4s, v1.4s
		{"VFMIN_S4(v1, v12, v31)", 0x4ea1f59f},          // fmin v31.4s, v12.4s, v1.4s
		{"VFADDP_S4(v1, v12, v31)", 0x6e21d59f},         // faddp v31.4s, v12.4s, v1.4s
		{"VFCMGT_S4(v1, v12, v31)", 0x6ea1e59f},         // fcmgt v31.4s, v12.4s, v1.4s
		{"VFMLA_S4_LANE(0, v29, v10, v5)", 0x4f9d1145},  // fmla v5.4s, v10.4s, v29.s[0]
		{"VFMLA_S4_LANE(1, v29, v10, v5)", 0x4fbd1145},  // fmla v5.4s, v10.4s, v29.s[1]
		{"VFMLA_S4_LANE(2, v29, v10, v5)", 0x4f9d1945},  // fmla v5.4s, v10.4s, v29.s[2]
		{"VFMLA_S4_LANE(3, v29, v10, v5)", 0x4fbd1945},  // fmla v5.4s, v10.4s, v29.s[3]
		{"VFMUL_S4_LANE(0, v29, v10, v5)", 0x4f9d9145},  // fmul v5.4s, v10.4s, v29.s[0]
		{"VFMUL_S4_LANE(1, v29, v10, v5)", 0x4fbd9145},  // fmul v5.4s, v10.4s, v29.s[1]
		{"VFMUL_S4_LANE(2, v29, v10, v5)", 0x4f9d9945},  // fmul v5.4s, v10.4s, v29.s[2]
		{"VFMUL_S4_LANE(3, v29, v10, v5)", 0x4fbd9945},  // fmul v5.4s, v10.4s, v29.s[3]
		{"VFABS_S4(v30, v7)", 0x4ea0fbc7},               // fabs v7.4s, v30.4s
		{"VFNEG_S4(v30, v7)", 0x6ea0fbc7},               // fneg v7.4s, v30.4s
		{"VSCVTF_S4(v30, v7)", 0x4e21dbc7},              // scvtf v7.4s, v30.4s
		{"VFCVTZS_S4(v30, v7)", 0x4ea1bbc7},             // fcvtzs v7.4s, v30.4s
		{"VFCVTL_S4(v30, v7)", 0x0e217bc7},              // fcvtl v7.4s, v30.4h
		{"VFCVTL2_S4(v30, v7)", 0x4e217bc7},             // fcvtl2 v7.4s, v30.8h
		{"VFCVTN_H4(v30, v7)", 0x0e216bc7},              // fcvtn v7.4h, v30.4s
		{"VFCVTN2_H8(v30, v7)", 0x4e216bc7},             // fcvtn2 v7.8h, v30.4s
		{"VFMAXV_S4(v30, v7)", 0x6e30fbc7},              // fmaxv s7, v30.4s
		{"VSSHR_S4(1, v30, v7)", 0x4f3f07c7},            // sshr v7.4s, v30.4s, 1
		{"VSSHLL_H8(0, v30, v7)", 0x0f08a7c7},           // sxtl v7.8h, v30.8b
		{"VSSHLL2_H8(7, v30, v7)", 0x4f0fa7c7},          // sshll2 v7.8h, v30.16b, 7
		{"VSSHLL_S4(0, v30, v7)", 0x0f10a7c7},           // sxtl v7.4s, v30.4h
		{"VSSHLL2_S4(3, v30, v7)", 0x4f13a7c7},          // sshll2 v7.4s, v30.8h, 3
		{"VSMLAL_S4_LANE(0, v15, v16, v9)", 0x0f4f2209}, // smlal v9.4s, v16.4h, v15.h[0]
		{"VSMLAL_S4_LANE(1, v15, v16, v9)", 0x0f5f2209}, // smlal v9.4s, v16.4h, v15.h[1]
		{"VSMLAL_S4_LANE(2, v15, v16, v9)", 0x0f6f2209}, // smlal v9.4s, v16.4h, v15.h[2]
		{"VSMLAL_S4_LANE(3, v15, v16, v9)", 0x0f7f2209}, // smlal v9.4s, v16.4h, v15.h[3]
		{"VSMLAL_S4_LANE(4, v15, v16, v9)", 0x0f4f2a09}, // smlal v9.4s, v16.4h, v15.h[4]
		{"VSMLAL_S4_LANE(5, v15, v16, v9)", 0x0f5f2a09}, // smlal v9.4s, v16.4h, v15.h[5]
		{"VSMLAL_S4_LANE(6, v15, v16, v9)", 0x0f6f2a09}, // smlal v9.4s, v16.4h, v15.h[6]
		{"VSMLAL_S4_LANE(7, v15, v16, v9)", 0x0f7f2a09}, // smlal v9.4s, v16.4h, v15.h[7]
		{"VSMLAL2_S4_LANE(6, v5, v16, v9)", 0x4f652a09}, // smlal2 v9.4s, v16.8h, v5.h[6]
		{"VMOV_B16(v30, v7)", 0x4ebe1fc7},               // mov v7.16b, v30.16b
		{"VFMLA_S4(v1, v12, v31)", 0x4e21cd9f},          // fmla v31.4s, v12.4s, v1.4s
		{"VADD_S4(v1, v12, v31)", 0x4ea1859f},           // add v31.4s, v12.4s, v1.4s
		{"VSHL_S4(8, v12, v31)", 0x4f28559f},            // shl v31.4s, v12.4s, 8
		{"VSHL_S4(31, v0, v1)", 0x4f3f5401},             // shl v1.4s, v0.4s, 31
		{"VUSHL_S4(v1, v12, v31)", 0x6ea1459f},          // ushl v31.4s, v12.4s, v1.4s
		{"VCMTST_B16(v1, v12, v31)", 0x4e218d9f},        // cmtst v31.16b, v12.16b, v1.16b
		{"VCMHI_B16(v1, v12, v31)", 0x6e21359f},         // cmhi v31.16b, v12.16b, v1.16b
		{"VUDOT_S4_LANE(0, v29, v10, v5)", 0x6f9de145},  // udot v5.4s, v10.16b, v29.4b[0]
		{"VUDOT_S4_LANE(1, v29, v10, v5)", 0x6fbde145},  // udot v5.4s, v10.16b, v29.4b[1]
		{"VUDOT_S4_LANE(2, v29, v10, v5)", 0x6f9de945},  // udot v5.4s, v10.16b, v29.4b[2]
		{"VUDOT_S4_LANE(3, v29, v10, v5)", 0x6fbde945},  // udot v5.4s, v10.16b, v29.4b[3]
		{"VMUL_S4(v1, v12, v31)", 0x4ea19d9f},           // mul v31.4s, v12.4s, v1.4s
		{"VFCVTNS_S4(v30, v7)", 0x4e21abc7},             // fcvtns v7.4s, v30.4s
		{"VXTN_H4(v30, v7)", 0x0e612bc7},                // xtn v7.4h, v30.4s
		{"VXTN2_H8(v30, v7)", 0x4e612bc7},               // xtn2 v7.8h, v30.4s
		{"VSADDLP_S4(v30, v7)", 0x4e602bc7},             // saddlp v7.4s, v30.8h
		{"VSADALP_S4(v30, v7)", 0x4e606bc7},             // sadalp v7.4s, v30.8h
		{"VSDOT_S4(v2, v1, v0)", 0x4e829420},            // sdot v0.4s, v1.16b, v2.16b
		{"VSDOT_S4(v31, v30, v29)", 0x4e9f97dd},         // sdot v29.4s, v30.16b, v31.16b
		{"VSDOT_S4_LANE(0, v29, v10, v5)", 0x4f9de145},  // sdot v5.4s, v10.16b, v29.4b[0]
		{"VSDOT_S4_LANE(1, v29, v10, v5)", 0x4fbde145},  // sdot v5.4s, v10.16b, v29.4b[1]
		{"VSDOT_S4_LANE(2, v29, v10, v5)", 0x4f9de945},  // sdot v5.4s, v10.16b, v29.4b[2]
		{"VSDOT_S4_LANE(3, v29, v10, v5)", 0x4fbde945},  // sdot v5.4s, v10.16b, v29.4b[3]
	} {
		lines = append(lines, c.line)
		want = append(want, hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, c.want)))
	}
	golden(t, "arm64", lines, want)
}
