package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// writeTexts writes man/*.1 and completions/* into a folder, as the program of this machine prints them.
func writeTexts(program, folder string) error {
	for shell, suffix := range map[string]string{"bash": "bash", "zsh": "zsh", "fish": "fish", "powershell": "ps1"} {
		text, err := ask(program, "completion", shell)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(folder, "completions", "karat."+suffix), []byte(text)); err != nil {
			return err
		}
	}
	version, err := ask(program, "version")
	if err != nil {
		return err
	}
	if f := strings.Fields(version); len(f) > 1 {
		version = strings.Join(f[:2], " ")
	}
	return writeMan(program, folder, version, "", nil)
}

// ask returns what the program prints.
func ask(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// writeMan writes the page of a command and of each of its subcommands. short is the line of the list of commands.
func writeMan(program, folder, version, short string, path []string) error {
	help, err := ask(program, append(path[:len(path):len(path)], "--help-all")...)
	if err != nil {
		return err
	}
	name := strings.Join(append([]string{"karat"}, path...), "-")
	if short == "" {
		short = "run language models, and check that their logits are right"
	}
	page := []byte(manPage(name, short, version, help))
	if err := writeFile(filepath.Join(folder, "man", name+".1"), page); err != nil {
		return err
	}
	for _, sub := range subcommands(help) {
		if sub[0] == "completion" || sub[0] == "help" {
			continue
		}
		if err := writeMan(program, folder, version, sub[1], append(path[:len(path):len(path)], sub[0])); err != nil {
			return err
		}
	}
	return nil
}

// subcommand matches a line of the list of commands.
var subcommand = regexp.MustCompile(`^  ([a-z]+) +(\S.*)`)

// subcommands returns the names and the words in the list of commands of a help.
func subcommands(help string) (all [][2]string) {
	_, list, _ := strings.Cut(help, "\nCommands:\n")
	for _, line := range strings.Split(list, "\n") {
		m := subcommand.FindStringSubmatch(line)
		if m == nil {
			break
		}
		all = append(all, [2]string{m[1], m[2]})
	}
	return all
}

// section matches the head of a section of a help, such as "Usage:".
var section = regexp.MustCompile(`^([A-Z][A-Za-z ]*):$`)

// manPage returns a help as a page of man. The lines of the help stay as they are.
func manPage(name, short, version, help string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"User Commands\"\n", strings.ToUpper(name), version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n", roff(name), roff(short))
	blank := false
	for _, line := range strings.Split(strings.TrimSpace(help), "\n") {
		m := section.FindStringSubmatch(line)
		switch {
		case m != nil:
			fmt.Fprintf(&b, ".fi\n.SH %s\n.nf\n", roff(strings.ToUpper(m[1])))
		case line != "" && blank:
			fmt.Fprintf(&b, ".sp\n%s\n", roff(line))
		case line != "":
			fmt.Fprintf(&b, "%s\n", roff(line))
		}
		blank = line == ""
	}
	b.WriteString(".fi\n")
	return b.String()
}

// roff escapes a line for man: what begins a request, backslashes, and dashes, which are to stay ASCII's.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}

// writeFile writes a file, and the folder above.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
