package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/experiment"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
	reports "github.com/karat-run/karat/internal/lab/report"
)

var updateSchemas = flag.Bool("schemas", false, "write docs/schemas anew")

// schemas are the JSON forms of the lab's commands by the names of their schemas.
var schemas = map[string]any{
	"diagnose":           diagnose.Diagnosis{},
	"diagnose-brief":     reports.Brief{},
	"expect":             diagnose.Expectation{},
	"compare":            lab.Comparison{},
	"causes":             []mistake.Cause{},
	"floor":              []diagnose.Floor{},
	"file":               labFile{},
	"experiment":         experimentDone{},
	"experiment-compare": experiment.Comparison{},
	"intervention":       experiment.Effect{},
	"compare-by-layer": struct {
		Golden string              `json:"golden"`
		Record string              `json:"record"`
		Layers []lab.LayerDistance `json:"layers"`
	}{},
	"compare-history": struct {
		Golden  string    `json:"golden"`
		History []lab.Era `json:"history"`
	}{},
	"hook": struct {
		Engine string `json:"engine"`
		Text   string `json:"text"`
	}{},
}

// fieldComments reads the comments of structs' fields by package, type and field.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{".", "../../internal/lab", "../../internal/lab/diagnose", "../../internal/lab/report", "../../internal/lab/mistake", "../../internal/experiment", "../../internal/model"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if x, ok := s.Type.(*ast.StructType); ok {
					for _, field := range x.Fields.List {
						for _, name := range field.Names {
							all[f.Name.Name+"."+s.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()+" "+field.Comment.Text()), " ")
						}
					}
				}
				return true
			})
		}
	}
	return all
}

// schemaOf returns the schema of values of a type, as encoding/json writes them.
func schemaOf(t reflect.Type, comments map[string]string) map[string]any {
	orNull := func(kind string, s map[string]any) map[string]any {
		s["type"] = []string{kind, "null"}
		return s
	}
	switch {
	case t == reflect.TypeFor[lab.Number]():
		return map[string]any{"anyOf": []any{map[string]any{"type": "number"}, map[string]any{"enum": []string{"NaN", "Infinity", "-Infinity"}}}}
	case t == reflect.TypeFor[json.RawMessage]() || t.Kind() == reflect.Interface:
		return map[string]any{}
	case t == reflect.TypeFor[diagnose.Do]():
		return map[string]any{"enum": []diagnose.Do{diagnose.DoRename, diagnose.DoMendProbe, diagnose.DoMend, diagnose.DoAddTaps, diagnose.DoExpect, diagnose.DoAddPrompt, diagnose.DoDecode, diagnose.Done}}
	case t == reflect.TypeFor[diagnose.Verdict]():
		return map[string]any{"enum": []diagnose.Verdict{diagnose.Instrument, diagnose.Input, diagnose.Weights, diagnose.Structural, diagnose.Reference, diagnose.Unexplained, diagnose.Sensitivity, diagnose.Numeric, diagnose.Clean}}
	}
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Pointer:
		s := schemaOf(t.Elem(), comments)
		if kind, ok := s["type"].(string); ok {
			return orNull(kind, s)
		}
		return s
	case reflect.Slice:
		return orNull("array", map[string]any{"items": schemaOf(t.Elem(), comments)})
	case reflect.Array:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), comments), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return orNull("object", map[string]any{"additionalProperties": schemaOf(t.Elem(), comments)})
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for f := range t.Fields() {
			name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && name == "":
				inner := schemaOf(f.Type, comments)
				for k, v := range inner["properties"].(map[string]any) {
					properties[k] = v
				}
				required = append(required, inner["required"].([]string)...)
				continue
			case !f.IsExported() || name == "-":
				continue
			case name == "":
				name = f.Name
			}
			s := schemaOf(f.Type, comments)
			if c := comments[strings.TrimPrefix(t.String(), "*")+"."+f.Name]; c != "" {
				s["description"] = c
			}
			if properties[name] = s; !strings.Contains(rest, "omit") {
				required = append(required, name)
			}
		}
		return map[string]any{"type": "object", "properties": properties, "required": required}
	}
	return map[string]any{"type": "integer"}
}

// TestSchemas: docs/schemas has the schema of each JSON that the lab prints, and what commands print fits.
func TestSchemas(t *testing.T) {
	comments, dir := fieldComments(t), "../../docs/schemas"
	for name, v := range schemas {
		s := schemaOf(reflect.TypeOf(v), comments)
		s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", "karat lab: "+name
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(s); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "lab-"+name+".json")
		if *updateSchemas {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if had, err := os.ReadFile(path); err != nil || !bytes.Equal(had, b.Bytes()) {
			t.Errorf("%s is not the schema of what the command prints (%v): go test ./cmd/karat -run TestSchemas -schemas", path, err)
		}
	}
	model, tmp := golden.Model(t, "tiny-qwen2"), t.TempDir()
	prompts, wrong := filepath.Join(tmp, "p.json"), filepath.Join(tmp, "wrong.safetensors")
	if err := os.WriteFile(prompts, []byte(`[{"text": "The sky is blue"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ schema, line string }{
		{"file", "record M --prompts " + prompts + " -o " + wrong + " --taps all --precision f64 --inject attention_scale=0.5@1 --json"},
		{"diagnose", "diagnose M " + wrong + " --json"},
		{"diagnose-brief", "diagnose M " + wrong + " --brief"},
		{"expect", "expect M " + wrong + " --tap blk.1.attention --json"},
		{"compare", "compare " + wrong + " " + wrong + " --max-kl 1 --json"},
		{"compare-by-layer", "compare " + wrong + " " + wrong + " --by-layer --json"},
		{"compare-history", "compare " + wrong + " " + wrong + " --history --json"},
		{"causes", "causes --json"},
		{"hook", "hook --print torch --json"},
		{"file", "import " + wrong + " -o " + filepath.Join(tmp, "in.safetensors") + " --json"},
		{"file", "extract M --prompts " + prompts + " -o " + filepath.Join(tmp, "x.npy") + " --json"},
		{"floor", "floor M --prompts " + prompts + " --json"},
		{"intervention", "scale M Hello --at blk.0.out --by 2 --json"},
	} {
		var schema jsonschema.Schema
		b, err := os.ReadFile(filepath.Join(dir, "lab-"+c.schema+".json"))
		if err == nil {
			err = json.Unmarshal(b, &schema)
		}
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := schema.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		root := newRootCommand()
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(append([]string{"lab"}, strings.Fields(strings.ReplaceAll(c.line, " M ", " "+model+" "))...))
		status := root.Execute() // a verdict is an error
		var v any
		if err := json.Unmarshal(out.Bytes(), &v); err != nil {
			t.Errorf("%s: %v, %v", c.line, err, status)
		} else if err := resolved.Validate(v); err != nil {
			t.Errorf("%s: %v", c.line, err)
		}
	}
}
