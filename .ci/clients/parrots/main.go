// Parrots writes the models that agents talk to into a folder: one calls a tool, one says what came of it, one writes
// JSON.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/karat-run/karat/internal/dev/parrot"
)

func main() {
	log.SetFlags(0)
	template, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for name, says := range map[string]string{
		"caller": "<think>\nI look.\n</think>\n\nLet me see.\n" +
			"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
		"teller": "<think>\nSo it is.\n</think>\n\nIt rains in Oslo.",
		"writer": `{"city": "Oslo"}`,
	} {
		if err := parrot.WriteFile(filepath.Join(os.Args[2], name+".gguf"), string(template), says,
			parrot.Options{Context: 32768}); err != nil {
			log.Fatal(err)
		}
	}
}
