package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestFresh(t *testing.T) {
	for name, want := range headers() {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is stale (go generate ./internal/simd writes it)", name)
		}
	}
}

// assemble returns the bytes, in hexadecimal, that Go's assembler makes of a
// line after a header is included.
func assemble(t *testing.T, arch, line string) string {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "a.s")
	text := "#include \"words_" + arch + ".h\"\nTEXT ·f(SB), 4, $0-0\n\t" + line + "\n"
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "asm", "-S", "-p", "a", "-I", "..", "-o", filepath.Join(dir, "a.o"), name)
	cmd.Env = append(os.Environ(), "GOARCH="+arch)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	var hex strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^\t0x[0-9a-f]{4} ((?:[0-9a-f]{2} )+)`).FindAllStringSubmatch(string(out), -1) {
		hex.WriteString(strings.ReplaceAll(m[1], " ", ""))
	}
	return hex.String()
}

// TestGoldenAMD64 has the bytes of GNU as 2.40, told to write displacements of
// 32 bits; LDTILECFG's SIB byte it left out where it could, and read.
func TestGoldenAMD64(t *testing.T) {
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
		{"TILELOADDT1(0, regR12, regAX, tmm2)", "c4c2794b9404" + "00000000"},
		{"TILESTORED(tmm5, 16, regDI, regCX)", "c4e27a4bac0f" + "10000000"},
		{"TDPBSSD(tmm2, tmm1, tmm0)", "c4e26b5ec1"},
		{"TDPBSUD(tmm7, tmm6, tmm5)", "c4e2425eee"},
		{"TDPBUSD(tmm0, tmm3, tmm4)", "c4e2795ee3"},
		{"TDPBUUD(tmm6, tmm4, tmm7)", "c4e2485efc"},
	} {
		if got := assemble(t, "amd64", c.line); got != c.want {
			t.Errorf("%s is %s, want %s", c.line, got, c.want)
		}
	}
}
