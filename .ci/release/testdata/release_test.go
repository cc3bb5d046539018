// Package release tests what goreleaser left in the folder of -dist.
package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdx "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

var dist = flag.String("dist", "", "folder of a release, as goreleaser left it; without it the tests of releases are skipped")

// release is a folder of a release: the version, and sums by the names of files.
type release struct {
	t       *testing.T
	version string
	sums    map[string]string
}

func open(t *testing.T) *release {
	t.Helper()
	if *dist == "" {
		t.Skip("no -dist")
	}
	r := &release{t: t, sums: map[string]string{}}
	for line := range strings.Lines(string(r.read("checksums.txt"))) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Fatalf("checksums.txt: %q", line)
		}
		r.sums[name] = sum
		if v, ok := strings.CutSuffix(name, "_oci.tar"); ok {
			r.version = strings.TrimPrefix(v, "karat_")
		}
	}
	return r
}

// read returns a file of the release.
func (r *release) read(name string) []byte {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(*dist, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// write writes a file, and the folder above.
func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// program returns the path of a program of the release, as goreleaser built it.
func (r *release) program(system, arch string) string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(*dist, "karat_"+system+"_"+arch+"*", "karat*"))
	if err != nil || len(found) != 1 {
		r.t.Fatalf("programs of %s %s: %q %v", system, arch, found, err)
	}
	return found[0]
}

// TestContents: the release has six programs, with an archive and a bill of each, six packages and an image. checksums.txt
// has the sum of each file, and the sums of the programs equal the sums that the programs print.
func TestContents(t *testing.T) {
	r := open(t)
	var want []string
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			base := "karat_" + r.version + "_" + system + "_" + arch
			archive, program := ".tar.gz", base
			if system == "windows" {
				archive, program = ".zip", base+".exe"
			}
			want = append(want, base+archive, program, base+".spdx.json")
			data, err := os.ReadFile(r.program(system, arch))
			if err != nil {
				t.Fatal(err)
			}
			if got := hashOf(data); got != r.sums[program] {
				t.Errorf("%s: %s, checksums.txt says %q", program, got, r.sums[program])
			}
			if system == "linux" {
				want = append(want, base+".deb", base+".rpm", base+".apk", base+"_static", base+"_static.spdx.json")
			}
		}
	}
	want = append(want, "karat_"+r.version+"_oci.tar")
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(r.sums)); !slices.Equal(got, want) {
		t.Errorf("checksums.txt has\n%q, want\n%q", got, want)
	}
	for name, sum := range r.sums {
		if data, err := os.ReadFile(filepath.Join(*dist, name)); err == nil && hashOf(data) != sum {
			t.Errorf("%s: another sum than in checksums.txt", name)
		} else if err != nil && !errors.Is(err, os.ErrNotExist) { // programs lie in folders
			t.Error(err)
		}
	}
}

// TestArchives: archives have the program, the licence, man pages and completions, all root's and of the commit's time.
func TestArchives(t *testing.T) {
	r := open(t)
	count := 0
	for name := range r.sums {
		files := map[string]time.Time{}
		var program []byte
		switch {
		case strings.HasSuffix(name, ".tar.gz"):
			z, err := gzip.NewReader(bytes.NewReader(r.read(name)))
			if err != nil {
				t.Fatal(err)
			}
			if !z.ModTime.IsZero() {
				t.Errorf("%s: gzip's time is %v", name, z.ModTime)
			}
			for tr := tar.NewReader(z); ; {
				h, err := tr.Next()
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if h.Uid != 0 || h.Gid != 0 || h.Uname != "root" || h.Gname != "root" {
					t.Errorf("%s: %s belongs to %d %q %d %q", name, h.Name, h.Uid, h.Uname, h.Gid, h.Gname)
				}
				if h.Typeflag == tar.TypeReg {
					files[h.Name] = h.ModTime.UTC()
				}
				if strings.HasSuffix(h.Name, "/karat") {
					if h.Mode != 0o755 {
						t.Errorf("%s: %s has the mode %o", name, h.Name, h.Mode)
					}
					program, err = io.ReadAll(tr)
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		case strings.HasSuffix(name, ".zip"):
			data := r.read(name)
			z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range z.File {
				files[f.Name] = f.Modified.UTC()
				if strings.HasSuffix(f.Name, "/karat.exe") {
					rc, err := f.Open()
					if err != nil {
						t.Fatal(err)
					}
					if program, err = io.ReadAll(rc); err != nil {
						t.Fatal(err)
					}
				}
			}
		default:
			continue
		}
		count++
		base := strings.TrimSuffix(strings.TrimSuffix(name, ".tar.gz"), ".zip")
		if sum := r.sums[base]; sum != "" && hashOf(program) != sum || sum == "" && hashOf(program) != r.sums[base+".exe"] {
			t.Errorf("%s: the program has another sum than the one alone", name)
		}
		for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md", "man/karat.1", "man/karat-serve.1", "man/karat-lab-diagnose.1", "completions/karat.bash", "completions/karat.zsh", "completions/karat.fish", "completions/karat.ps1"} {
			if _, ok := files[base+"/"+file]; !ok {
				t.Errorf("%s lacks %s", name, file)
			}
		}
		times := slices.Compact(slices.SortedFunc(maps.Values(files), time.Time.Compare))
		if len(times) != 1 {
			t.Errorf("%s has the times %v", name, times)
		}
	}
	if count != 6 {
		t.Errorf("%d archives", count)
	}
}

// TestBills: each bill of materials is SPDX, and has the program's hash, Go and the modules.
func TestBills(t *testing.T) {
	r := open(t)
	count := 0
	for name := range r.sums {
		base, ok := strings.CutSuffix(name, ".spdx.json")
		if !ok {
			continue
		}
		count++
		d, err := spdx.Read(bytes.NewReader(r.read(name)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := spdxlib.ValidateDocument(d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		names := map[string]string{}
		for _, p := range d.Packages {
			names[p.PackageName] = p.PackageVersion
		}
		sum := d.Packages[0].PackageChecksums[0].Value
		if sum != r.sums[base] && sum != r.sums[base+".exe"] {
			t.Errorf("%s: the program's hash is %s", name, sum)
		}
		if names["stdlib"] == "" || names["github.com/spf13/cobra"] == "" || names["golang.org/x/sys"] == "" {
			t.Errorf("%s: %v", name, names)
		}
	}
	if count != 8 {
		t.Errorf("%d bills", count)
	}
}

// TestImage: the layout is OCI's, whole, for two processors, and starts the release's program without a right.
func TestImage(t *testing.T) {
	r := open(t)
	dir := t.TempDir()
	for tr := tar.NewReader(bytes.NewReader(r.read("karat_" + r.version + "_oci.tar"))); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if err := write(filepath.Join(dir, filepath.FromSlash(h.Name)), data); err != nil {
			t.Fatal(err)
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != r.version {
		t.Fatalf("%+v %v", m, err)
	}
	index, err := top.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = index.IndexManifest(); err != nil || len(m.Manifests) != 2 {
		t.Fatalf("%+v %v", m, err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		d := m.Manifests[i]
		if d.Platform == nil || d.Platform.OS != "linux" || d.Platform.Architecture != arch {
			t.Errorf("the platform %+v", d.Platform)
		}
		im, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := im.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c.Architecture != arch || c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/karat", "serve", "--host", "0.0.0.0"}) || c.Config.Labels["org.opencontainers.image.version"] != r.version {
			t.Errorf("%s: %+v", arch, c.Config)
		}
		layers, err := im.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatal(len(layers), err)
		}
		plain, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		tr := tar.NewReader(plain)
		h, err := tr.Next()
		if err != nil || h.Name != "karat" || h.Mode != 0o755 || h.Uid != 0 {
			t.Fatalf("%+v %v", h, err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if hashOf(data) != r.sums["karat_"+r.version+"_linux_"+arch+"_static"] {
			t.Errorf("%s: the image has another program", arch)
		}
	}
}

// TestManagers: the files for Homebrew, Scoop and winget name archives of this release by their sums.
func TestManagers(t *testing.T) {
	r := open(t)
	hash := regexp.MustCompile(`(?i)\b[0-9a-f]{64}\b`)
	for pattern, archives := range map[string][]string{
		"homebrew/Casks/karat.rb": {"darwin_amd64.tar.gz", "darwin_arm64.tar.gz", "linux_amd64.tar.gz", "linux_arm64.tar.gz"},
		"scoop/karat.json":        {"windows_amd64.zip", "windows_arm64.zip"},
		"winget/manifests/k/karat-run/karat/" + r.version + "/karat-run.karat.installer.yaml": {"windows_amd64.zip", "windows_arm64.zip"},
	} {
		text := string(r.read(pattern))
		var want []string
		for _, a := range archives {
			name := "karat_" + r.version + "_" + a
			want = append(want, r.sums[name])
			if !strings.Contains(text, a) && !strings.Contains(text, "_#{arch}") {
				t.Errorf("%s does not name %s", pattern, name)
			}
		}
		got := hash.FindAllString(strings.ToLower(text), -1)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(slices.Compact(got), want) {
			t.Errorf("%s has the sums %q, want %q", pattern, got, want)
		}
	}
}

// TestDebian: dpkg installs the package into a root of its own. The program there runs a prompt, is the release's by checksums.txt, and goes
// without a rest.
func TestDebian(t *testing.T) {
	r := open(t)
	arch, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		t.Skip("no dpkg:", err)
	}
	if os.Getuid() != 0 {
		t.Skip("dpkg installs for root alone")
	}
	root := t.TempDir()
	for _, d := range []string{"info", "updates"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(filepath.Join(root, "var/lib/dpkg/status"), nil); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	deb := filepath.Join(*dist, "karat_"+r.version+"_linux_"+strings.TrimSpace(string(arch))+".deb")
	run("dpkg", "--root="+root, "--force-script-chrootless", "--force-depends", "-i", deb)
	if status := run("dpkg", "--root="+root, "-s", "karat"); !strings.Contains(status, "Status: install ok installed") {
		t.Error(status)
	}
	if fields := run("dpkg-deb", "-f", deb, "Depends", "Installed-Size"); !strings.Contains(fields, "Depends: libc6\n") {
		t.Error(fields)
	}
	list := run("dpkg", "--root="+root, "-L", "karat")
	for _, want := range []string{"/usr/bin/karat", "/usr/share/man/man1/karat.1", "/usr/share/man/man1/karat-serve.1", "/usr/share/bash-completion/completions/karat", "/usr/share/doc/karat/copyright"} {
		if !strings.Contains(list, want+"\n") {
			t.Errorf("dpkg -L lacks %s:\n%s", want, list)
		}
	}
	program := filepath.Join(root, "usr/bin/karat")
	want := fmt.Sprintf("this program is karat_%s_linux_%s in ", r.version, strings.TrimSpace(string(arch)))
	if got := run(program, "version", "--verify", filepath.Join(*dist, "checksums.txt")); !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := run(program, "run", "-n", "2", "The color of the sky is"); !strings.Contains(got, "blue") {
		t.Errorf("the demo says %q", got)
	}
	run("bash", "-n", filepath.Join(root, "usr/share/bash-completion/completions/karat"))
	run("dpkg", "--root="+root, "--force-script-chrootless", "-P", "karat")
	if _, err := os.Stat(program); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program is still there: %v", err)
	}
}
