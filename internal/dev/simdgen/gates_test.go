package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// x86 are the instructions that kernels may have, by the feature of package cpu
// that they need in the encodings before EVEX and in EVEX; - is none.
var x86 = []struct{ vex, evex, names string }{
	{"", "-", `RET BSFL BSFQ CALL JMP JEQ JNE JLT JLE JGT JGE JLS JHI JCS JCC JMI JPL PUSHQ POPQ PAUSE
		MOVB MOVW MOVL MOVQ MOVBLZX MOVBQZX MOVWLZX MOVWQZX MOVLQSX MOVLQZX LEAL LEAQ XORL XORQ ORL ORQ ANDL ANDQ NOTQ NEGQ
		ADDL ADDQ SUBL SUBQ INCL INCQ DECL DECQ IMULL IMULQ IMUL3L IMUL3Q SHLL SHLQ SHRL SHRQ SARL SARQ
		CMPB CMPL CMPQ TESTB TESTL TESTQ CMOVQEQ CMOVQNE CMOVQLT CMOVQLE CMOVQGT CMOVQGE
		PREFETCHT0 PREFETCHT1 PREFETCHT2 PREFETCHNTA`},
	{"BMI2", "-", "BZHIL BZHIQ SHLXL SHLXQ SHRXL SHRXQ SARXL SARXQ RORXL RORXQ MULXL MULXQ PDEPL PDEPQ PEXTL PEXTQ"},
	{"BMI1", "-", "ANDNL ANDNQ BLSRL BLSRQ BLSIL BLSIQ TZCNTL TZCNTQ"},
	{"POPCNT", "-", "POPCNTL POPCNTQ"},
	{"AVX2", "-", `VZEROUPPER VZEROALL VMOVDQA VMOVDQU VPXOR VPOR VPAND VPANDN VPHADDD VPHADDW VHADDPS VHADDPD VMASKMOVPS VMASKMOVPD VPMASKMOVD
		VPERM2F128 VPERM2I128 VEXTRACTF128 VEXTRACTI128 VINSERTF128 VINSERTI128 VBROADCASTF128 VBROADCASTI128
		VBLENDPS VBLENDVPS VPBLENDD VPBLENDW VPBLENDVB VMOVMSKPS VPMOVMSKB VROUNDPS VROUNDPD VBLENDVPD VPSIGNB VPSIGNW VPSIGND VPTEST`},
	{"AVX2", "AVX512F", `VMOVUPS VMOVAPS VMOVUPD VMOVAPD VMOVSS VMOVSD VMOVD VMOVQ VMOVNTDQ VMOVNTDQA VMOVNTPS VMOVHLPS VMOVLHPS VMOVSHDUP VMOVSLDUP VMOVDDUP
		VADDPS VADDSS VSUBPS VSUBSS VMULPS VMULSS VDIVPS VDIVSS VSQRTPS VMAXPS VMAXSS VMINPS VMINSS VCMPPS VCMPPD VCMPSS
		VADDPD VADDSD VSUBPD VMULPD VCVTPS2PD VCVTPD2PS VCVTDQ2PS VCVTPS2DQ VCVTTPS2DQ
		VPADDD VPADDQ VPSUBD VPSUBQ VPMULLD VPMULDQ VPMULUDQ VPABSD VPMAXSD VPMINSD VPMAXUD VPMINUD VPCMPEQD VPCMPGTD
		VPSLLD VPSLLQ VPSRLD VPSRLQ VPSRAD VPSLLVD VPSLLVQ VPSRLVD VPSRLVQ VPSRAVD
		VBROADCASTSS VBROADCASTSD VPBROADCASTD VPBROADCASTQ VPSHUFD VSHUFPS VSHUFPD VPERMILPS VPERMILPD VPERMD VPERMPS VPERMQ VPERMPD
		VUNPCKLPS VUNPCKHPS VUNPCKLPD VUNPCKHPD VPUNPCKLDQ VPUNPCKHDQ VPUNPCKLQDQ VPUNPCKHQDQ
		VPMOVZXBD VPMOVZXBQ VPMOVZXWD VPMOVZXDQ VPMOVSXBD VPMOVSXWD VPMOVSXDQ VPGATHERDD VGATHERDPS`},
	{"AVX2", "AVX512BW", `VPADDB VPADDW VPSUBB VPSUBW VPADDSB VPADDSW VPSUBSB VPSUBSW VPADDUSB VPSUBUSB VPABSB VPABSW
		VPMAXSB VPMAXSW VPMAXUB VPMAXUW VPMINSB VPMINSW VPMINUB VPMINUW VPMULLW VPMULHW VPMULHUW VPMULHRSW VPMADDWD VPMADDUBSW VPSADBW
		VPSLLW VPSRLW VPSRAW VPSLLDQ VPSRLDQ VPSHUFB VPSHUFLW VPSHUFHW VPALIGNR VPBROADCASTB VPBROADCASTW VPMOVZXBW VPMOVSXBW
		VPACKSSWB VPACKSSDW VPACKUSWB VPACKUSDW VPUNPCKLBW VPUNPCKHBW VPUNPCKLWD VPUNPCKHWD VPCMPEQB VPCMPEQW VPCMPGTB VPCMPGTW
		VPEXTRB VPEXTRW VPINSRB VPINSRW`},
	{"AVX2", "AVX512DQ", "VXORPS VORPS VANDPS VANDNPS VANDNPD VPEXTRD VPEXTRQ VPINSRD VPINSRQ"},
	{"FMA", "AVX512F", `VFMADD132PS VFMADD213PS VFMADD231PS VFMADD132SS VFMADD213SS VFMADD231SS VFMSUB132PS VFMSUB213PS VFMSUB231PS
		VFNMADD132PS VFNMADD213PS VFNMADD231PS VFNMSUB213PS VFNMSUB231PS VFMADD213PD VFMADD231PD`},
	{"F16C", "AVX512F", "VCVTPH2PS VCVTPS2PH"},
	{"AVX512F", "-", "KMOVW KANDW KORW KXORW KNOTW KORTESTW KUNPCKBW"},
	{"AVX512BW", "-", "KMOVD KMOVQ KANDD KANDQ KORD KORQ KNOTD KNOTQ KORTESTD KORTESTQ KXNORQ KUNPCKWD KUNPCKDQ"},
	{"AVX512DQ", "-", "KMOVB KANDB KORB KNOTB KORTESTB"},
	{"-", "AVX512F", `VMOVDQU32 VMOVDQU64 VMOVDQA32 VMOVDQA64 VPXORD VPXORQ VPORD VPORQ VPANDD VPANDQ VPANDND VPANDNQ VPTERNLOGD VPTERNLOGQ
		VPABSQ VPMAXSQ VPMINSQ VPSRAQ VPSRAVQ VPROLD VPRORD VPROLVD VPRORVD VSCALEFPS VRNDSCALEPS VRNDSCALEPD VGETEXPPS VGETMANTPS VFIXUPIMMPS
		VBROADCASTF32X4 VBROADCASTI32X4 VBROADCASTF64X4 VBROADCASTI64X4 VEXTRACTF32X4 VEXTRACTI32X4 VEXTRACTF64X4 VEXTRACTI64X4
		VINSERTF32X4 VINSERTI32X4 VINSERTF64X4 VINSERTI64X4 VSHUFF32X4 VSHUFI32X4 VSHUFF64X2 VSHUFI64X2 VALIGND VALIGNQ
		VPERMI2D VPERMI2PS VPERMT2D VPERMT2PS VPERMI2Q VPERMT2Q VBLENDMPS VPBLENDMD VPCOMPRESSD VPEXPANDD VCOMPRESSPS VCOMPRESSPD VEXPANDPS
		VPCMPD VPCMPUD VPTESTMD VPTESTNMD VPMOVDB VPMOVDW VPMOVSDB VPMOVSDW VPMOVUSDB VPMOVQD VCVTUDQ2PS VCVTPS2UDQ`},
	{"-", "AVX512BW", `VMOVDQU8 VMOVDQU16 VPERMW VPERMI2W VPERMT2W VPBLENDMB VPBLENDMW VPSLLVW VPSRLVW VPSRAVW VDBPSADBW
		VPCMPB VPCMPUB VPCMPW VPCMPUW VPTESTMB VPTESTMW VPMOVWB VPMOVSWB VPMOVUSWB VPMOVB2M VPMOVM2B VPMOVW2M VPMOVM2W`},
	{"-", "AVX512DQ", "VPMULLQ VPMOVD2M VPMOVM2D VBROADCASTF32X8 VBROADCASTI32X8 VEXTRACTF32X8 VEXTRACTI32X8 VINSERTF32X8 VINSERTI32X8 VRANGEPS"},
	{"-", "AVX512VNNI", "VPDPBUSD VPDPBUSDS VPDPWSSD VPDPWSSDS"},
	{"-", "AVX512GFNI", "VGF2P8AFFINEQB"},
	{"-", "AVX512VBMI", "VPERMB VPERMI2B VPERMT2B VPMULTISHIFTQB"},
}

// arm are those of arm64 that Go's assembler has; none needs more than Advanced SIMD.
var arm = strings.Fields(`NOOP RET CALL JMP BEQ BNE BLT BLE BGT BGE BLS BHI BLO BHS CBZ CBNZ TBZ TBNZ YIELD
	MOVB MOVBU MOVH MOVHU MOVW MOVWU MOVD ADD ADDS SUB SUBS MUL MADD NEG AND ANDS ORR EOR BIC LSL LSR ASR CMP CMPW CMN TST CSEL STP LDP PRFM
	FMOVS FMOVD FMOVQ FLDPQ FSTPQ FADDS FSUBS FMULS FDIVS FMADDS FMAXS FMINS
	VLD1 VLD1R VLD2 VLD3 VLD4 VST1 VST2 VST4 VMOV VMOVI VDUP VADD VSUB VADDP VADDV VAND VORR VEOR VBIT VBIF VBSL VCMEQ VCNT
	VSHL VUSHR VSLI VSRI VUSHLL VUSHLL2 VUXTL VUXTL2 VUADDLV VUMAX VUMIN VEXT VTBL VTBX VREV16 VREV32 VREV64
	VTRN1 VTRN2 VUZP1 VUZP2 VZIP1 VZIP2 VFMLA VFMLS`)

// variable are the bits of a form's words that operands choose.
var variable = map[string]uint32{
	two: 0x3ff, three: 0x1f03ff, laneS: 0x3f0bff, laneH: 0x3f0bff, "n, d: n<<16 | n<<5 | d": 0x1f03ff,
	rightS: 0x7f03ff, leftB: 0x7f03ff, leftH: 0x7f03ff, leftS: 0x7f03ff,
}

// demands returns the features of package cpu that has asks for, by the level's
// name. A level's conditions include those of the levels before it.
func demands(t *testing.T, arch string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../simd/tier_" + arch + ".go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("func hasLevel("))
	text, _, _ = bytes.Cut(text, []byte("\n}\n"))
	level, all, of := "", []string(nil), map[string][]string{}
	for _, m := range regexp.MustCompile(`(?:case|l ==) (\w+)|\.Has(\w+)`).FindAllSubmatch(text, -1) {
		if level = cmp.Or(string(m[1]), level); len(m[2]) > 0 {
			all = append(all, string(m[2]))
			of[level] = slices.Clone(all)
		}
	}
	return of
}

// An instruction of the assembler's listing.
type instruction struct {
	function, name string
	code           []byte // from it on to the function's end
	line           string
}

var (
	functionLine    = regexp.MustCompile(`^\S*?(\w+)(?:<\d*>)? STEXT`)
	instructionLine = regexp.MustCompile(`^\t0x([0-9a-f]+) \d+ \(([^)]*)\)\t(\S+)\t?(.*)$`)
	codeLine        = regexp.MustCompile(`^\t0x[0-9a-f]{4,} ((?:[0-9a-f]{2} )+)`)
)

// nothing are lines of a listing that are no instructions.
var nothing = []string{"TEXT", "FUNCDATA", "PCDATA", "NOP"}

// listing are the instructions of a file of package simd, macros expanded.
func listing(t *testing.T, arch, name string) (all []instruction) {
	t.Helper()
	var at []int
	var code []byte
	end := func() {
		for i := len(all) - len(at); i < len(all); i++ {
			all[i].code = code[at[i-len(all)+len(at)]:]
		}
		at, code = nil, nil
	}
	function := ""
	for line := range strings.Lines(listed(t, arch, name)) {
		line = strings.TrimSuffix(line, "\n")
		if m := functionLine.FindStringSubmatch(line); m != nil {
			end()
			function = m[1]
		} else if m := instructionLine.FindStringSubmatch(line); m != nil && !slices.Contains(nothing, m[3]) {
			n, err := strconv.ParseInt(m[1], 16, 0)
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, int(n))
			all = append(all, instruction{function, m[3], nil, fmt.Sprintf("%s: %s %s", m[2], m[3], m[4])})
		} else if m := codeLine.FindStringSubmatch(line); m != nil {
			b, err := hex.DecodeString(strings.ReplaceAll(m[1], " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			code = append(code, b...)
		}
	}
	end()
	return all
}

// excess finds the instructions of a file's functions that need more than the
// level which the function's name ends in.
func excess(t *testing.T, arch, name string, demands map[string][]string) (findings []string) {
	t.Helper()
	all := listing(t, arch, name)
	if len(all) == 0 {
		return []string{name + ": no instructions"}
	}
	needs := needsX86
	if arch == "arm64" {
		needs = needsARM
	}
	for skip := 0; len(all) > 0; all = all[1:] {
		if skip--; skip >= 0 {
			continue
		}
		i, level := all[0], ""
		if strings.HasSuffix(i.function, "Vec") { // what a tier with kernels has at least
			level = map[string]string{"amd64": "avx2", "arm64": "neon"}[arch]
		}
		for l := range demands {
			if strings.HasSuffix(i.function, strings.ToUpper(l)) && len(l) > len(level) {
				level = l
			}
		}
		features, data, err := needs(i)
		if skip = data; err != "" {
			findings = append(findings, i.line+": "+err)
		}
		asked := demands[level]
		if slices.Contains([]string{"unpackGridAVX512", "addDigitsAVX512", "addPointsAVX512"}, i.function) {
			// their callers ask for hasVBMI besides
			asked = append(slices.Clip(asked), "AVX512VBMI", "AVX512GFNI")
		}
		for _, f := range features {
			if !slices.Contains(asked, f) {
				findings = append(findings, fmt.Sprintf("%s: %s needs %s", i.line, i.function, f))
			}
		}
	}
	return findings
}

// needsX86 returns what an instruction needs, and if it is one of data, how many
// more lines of data it has.
func needsX86(i instruction) (features []string, data int, err string) {
	if i.name == "BYTE" {
		return needsAMX(i.code)
	}
	name, _, _ := strings.Cut(i.name, ".") // .Z, .BCST and so on
	for _, row := range x86 {
		if !slices.Contains(strings.Fields(row.names), name) {
			continue
		}
		switch evex := len(i.code) > 3 && i.code[0] == 0x62; {
		case !evex && row.vex != "-":
			features = append(features, row.vex)
		case evex && row.evex != "-":
			features = append(features, "AVX512F", row.evex)
			if i.code[3]>>5&3 != 2 {
				features = append(features, "AVX512VL")
			}
		default:
			continue
		}
		return slices.DeleteFunc(features, func(f string) bool { return f == "" }), 0, ""
	}
	return nil, 0, "unknown in this encoding"
}

// needsAMX is about bytes: VEX.128.0F38.W0, LDTILECFG, moves and products.
func needsAMX(code []byte) (features []string, data int, err string) {
	if len(code) >= 5 && code[0] == vex && code[1]&31 == 2 && code[2]&0x84 == 0 {
		switch opcode, register := code[3], code[4] >= 0xc0; {
		case opcode == 0x49 && register:
			return []string{"AMXTile"}, 4, ""
		case opcode == 0x49 || opcode == 0x4b && !register:
			return []string{"AMXTile"}, 6, "" // six bytes and four in one
		case opcode == 0x5c && register:
			return []string{"AMXTile", "AMXBF16"}, 4, ""
		case opcode == 0x5e && register:
			return []string{"AMXTile", "AMXInt8"}, 4, ""
		}
	}
	return nil, 0, "unknown bytes"
}

func needsARM(i instruction) (features []string, data int, err string) {
	name, _, _ := strings.Cut(i.name, ".") // .P and .W
	if slices.Contains(arm, name) {
		return nil, 0, ""
	}
	if name != "WORD" {
		return nil, 0, "unknown"
	}
	word := binary.LittleEndian.Uint32(i.code)
	for _, w := range words {
		if w.comment == "" && word&^variable[w.form] == w.base {
			if w.feature != "" {
				features = []string{w.feature}
			}
			return features, 0, ""
		}
	}
	return nil, 0, "unknown word"
}

// TestGates holds each kernel to the instructions of its level.
func TestGates(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		of := demands(t, arch)
		files, err := filepath.Glob("../../simd/*_" + arch + ".s")
		if err != nil || len(files) == 0 {
			t.Fatal(len(files), err)
		}
		for _, name := range files {
			for _, f := range excess(t, arch, name, of) {
				t.Error(f)
			}
		}
	}
}

// TestExcess has kernels that are wrong.
func TestExcess(t *testing.T) {
	for _, c := range []struct{ function, line, want string }{
		{"fAVX2", "VPADDD Y0, Y1, Y2", ""},
		{"fAVX2", "VPADDD Y0, Y1, Y16", "needs AVX512F"},
		{"fAVX2", "VPADDD Z0, Z1, Z2", "needs AVX512F"},
		{"fAVX2", "VPDPBUSD Y0, Y1, Y2", "needs AVX512VNNI"},
		{"fAVX2", "KMOVW AX, K1", "needs AVX512F"},
		{"fAVX2", "TZCNTQ AX, BX", "needs BMI1"},
		{"fAVX512", "VPDPBUSD Y0, Y1, Y2", ""},
		{"fAVX512", "VPERMB Z0, Z1, Z2", "needs AVX512VBMI"},
		{"fAVX512", "VAESENC X0, X1, X2", "unknown"},
		{"fAVX512", "TDPBF16PS(tmm0, tmm1, tmm2)", "needs AMXTile"},
		{"fAMX", "TDPBF16PS(tmm0, tmm1, tmm2); TILELOADD(64, regAX, regCX, tmm0); LDTILECFG(0, regR9); TILERELEASE; VPXORD Z0, Z0, Z0", ""},
		{"fAVX512", "TDPBUUD(tmm0, tmm1, tmm2)", "needs AMXInt8"},
		{"fAMX", "TDPBSUD(tmm0, tmm1, tmm2); TDPBUUD(tmm0, tmm1, tmm2)", ""},
		{"fAMX", "TDPBSSD(tmm0, tmm1, tmm2); TDPBUSD(tmm0, tmm1, tmm2)", ""},
		{"fAMX", "VGF2P8AFFINEQB $0, Z0, Z1, Z2", ""},
		{"fAVX512", "VGF2P8AFFINEQB $0, Z0, Z1, Z2", "needs AVX512GFNI"},
		{"fAMX", "VPERMB Z0, Z1, Z2", "needs AVX512VBMI"},
		{"fAMX", "BYTE $0x0f; BYTE $0x0b", "unknown bytes"},
		{"f", "VADDPS Y0, Y0, Y0", "needs AVX2"},
		{"fNEON", "VFADD_S4(v1, v2, v3); VSSHR_S4(1, v1, v2); VLD1.P 16(R0), [V0.B16]", ""},
		{"fNEON", "VSDOT_S4(v1, v2, v3)", "needs ASIMDDP"},
		{"fNEON", "VUDOT_S4_LANE(3, v31, v2, v3)", "needs ASIMDDP"},
		{"fNEON", "WORD $0x4e82a420", "unknown word"}, // SMMLA
		{"fNEON", "VEOR3 V0.B16, V1.B16, V2.B16, V3.B16", "unknown"},
		{"fSDOT", "VSDOT_S4(v1, v2, v3)", ""},
	} {
		arch := "amd64"
		if c.function == "fNEON" || c.function == "fSDOT" {
			arch = "arm64"
		}
		name := filepath.Join(t.TempDir(), "a.s")
		text := fmt.Sprintf("#include \"words_%s.h\"\nTEXT ·%s(SB), 4, $0-0\n\t%s\n\tRET\n", arch, c.function, c.line)
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(excess(t, arch, name, demands(t, arch)), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s: %q, want %q", c.function, c.line, got, c.want)
		}
	}
}
