// Command release writes the parts of a release that goreleaser does not: man pages and completions from the
// program's own help, bills of materials in SPDX, and an image in OCI's layout. The same inputs give the same bytes.
//
//	release texts PROGRAM FOLDER
//	release sbom PROGRAM DOCUMENT VERSION DATE
//	release image LAYOUT.tar VERSION DATE COMMIT PROGRAM_AMD64 PROGRAM_ARM64
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch {
	case name == "texts" && len(args) == 2:
		return writeTexts(args[0], args[1])
	case name == "sbom" && len(args) == 4:
		date, err := time.Parse(time.RFC3339, args[3])
		if err != nil {
			return err
		}
		return writeBill(args[0], args[1], args[2], date)
	case name == "image" && len(args) == 6:
		date, err := time.Parse(time.RFC3339, args[2])
		if err != nil {
			return err
		}
		im := image{version: args[1], date: date.UTC(), commit: args[3]}
		return im.write(args[0], map[string]string{"amd64": args[4], "arm64": args[5]})
	}
	return fmt.Errorf("want texts PROGRAM FOLDER, sbom PROGRAM DOCUMENT VERSION DATE, or image LAYOUT.tar VERSION " +
		"DATE COMMIT PROGRAM_AMD64 PROGRAM_ARM64")
}
