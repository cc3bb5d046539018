package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// writeBill writes the bill of materials of a program: the modules that the Go command noted in it, as SPDX 2.3.
func writeBill(program, document, version string, date time.Time) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	text, err := json.MarshalIndent(bill(filepath.Base(document), version, date, info, data), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(document, append(text, '\n'), 0o644)
}

// spdxPackage and spdxRelation are SPDX's, as far as this program writes them.
type (
	spdxPackage struct {
		Name       string         `json:"name"`
		ID         string         `json:"SPDXID"`
		Version    string         `json:"versionInfo"`
		Location   string         `json:"downloadLocation"`
		Analyzed   bool           `json:"filesAnalyzed"`
		Checksums  []spdxChecksum `json:"checksums,omitempty"`
		Concluded  string         `json:"licenseConcluded"`
		Declared   string         `json:"licenseDeclared"`
		Copyright  string         `json:"copyrightText"`
		Purpose    string         `json:"primaryPackagePurpose"`
		References []spdxExternal `json:"externalRefs,omitempty"`
		Comment    string         `json:"comment,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxExternal struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// bill returns the document: the program, its modules and Go itself.
func bill(name, version string, date time.Time, info *debug.BuildInfo, program []byte) map[string]any {
	sum := sha256.Sum256(program)
	hash := hex.EncodeToString(sum[:])
	const root = "SPDXRef-Program"
	settings := ""
	for _, s := range info.Settings {
		settings += s.Key + "=" + s.Value + "\n"
	}
	packages := []spdxPackage{{Name: info.Main.Path, ID: root, Version: version, Location: "NOASSERTION",
		Checksums: []spdxChecksum{{"SHA256", hash}}, Concluded: "Apache-2.0", Declared: "Apache-2.0",
		Copyright: "NOASSERTION", Purpose: "APPLICATION", Comment: strings.TrimSpace(settings),
		References: []spdxExternal{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + info.Main.Path + "@" + version}}}}
	relations := []spdxRelation{{"SPDXRef-DOCUMENT", "DESCRIBES", root}}
	add := func(path, v, sum string) {
		p := spdxPackage{Name: path, ID: "SPDXRef-Package-" + unfit.ReplaceAllString(path+"-"+v, "-"), Version: v,
			Location: "NOASSERTION", Concluded: "NOASSERTION", Declared: "NOASSERTION", Copyright: "NOASSERTION",
			Purpose: "LIBRARY", References: []spdxExternal{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + v}}}
		if sum != "" {
			p.Comment = "go.sum " + sum
		}
		packages = append(packages, p)
		relations = append(relations, spdxRelation{root, "DEPENDS_ON", p.ID})
	}
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(m.Path, m.Version, m.Sum)
	}
	return map[string]any{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
		"name":              strings.TrimSuffix(name, ".spdx.json"),
		"documentNamespace": "https://github.com/karat-run/karat/spdx/" + hash,
		"creationInfo": map[string]any{"created": date.UTC().Format(time.RFC3339),
			"creators": []string{"Organization: karat-run", "Tool: karat-release"}},
		"packages": packages, "relationships": relations}
}

// unfit matches what an identifier of SPDX may not have.
var unfit = regexp.MustCompile(`[^A-Za-z0-9.-]+`)
