// Oracle reads a Parquet file with another library, for the test of package parquet. It is a module of its own, so that
// programs that use Karat never hear of that library.
//
// Standard output is a JSON list of the file's rows, and the number of groups and the metadata behind it.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"

	"github.com/parquet-go/parquet-go"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("oracle: ")
	answer, err := read(os.Args[1])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answer)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func read(path string) (answer [3]any, err error) {
	f, err := os.Open(path)
	if err != nil {
		return answer, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return answer, err
	}
	p, err := parquet.OpenFile(f, st.Size())
	if err != nil {
		return answer, err
	}
	notes := map[string]string{}
	for _, pair := range p.Metadata().KeyValueMetadata {
		notes[pair.Key] = pair.Value
	}
	rows := make([]map[string]any, p.NumRows())
	for i := range rows {
		rows[i] = map[string]any{}
	}
	n, err := parquet.NewGenericReader[map[string]any](f, p.Schema()).Read(rows)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return [3]any{rows[:n], len(p.RowGroups()), notes}, err
}
