// Package registry lists the families of models that Karat runs.
package registry

import (
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/arch/afmoe"
	"github.com/karat-run/karat/internal/arch/apertus"
	"github.com/karat-run/karat/internal/arch/arcee"
	"github.com/karat-run/karat/internal/arch/bert"
	"github.com/karat-run/karat/internal/arch/cohere2"
	"github.com/karat-run/karat/internal/arch/deepseek2"
	"github.com/karat-run/karat/internal/arch/ernie45moe"
	ernie45 "github.com/karat-run/karat/internal/arch/ernie4_5"
	"github.com/karat-run/karat/internal/arch/eurobert"
	"github.com/karat-run/karat/internal/arch/exaone"
	"github.com/karat-run/karat/internal/arch/exaone4"
	"github.com/karat-run/karat/internal/arch/exaonemoe"
	"github.com/karat-run/karat/internal/arch/falcon"
	"github.com/karat-run/karat/internal/arch/falconh1"
	"github.com/karat-run/karat/internal/arch/gemma"
	gemmaembedding "github.com/karat-run/karat/internal/arch/gemma-embedding"
	"github.com/karat-run/karat/internal/arch/gemma2"
	"github.com/karat-run/karat/internal/arch/gemma3"
	"github.com/karat-run/karat/internal/arch/gemma3n"
	"github.com/karat-run/karat/internal/arch/gemma4"
	"github.com/karat-run/karat/internal/arch/gemma4v"
	"github.com/karat-run/karat/internal/arch/glm4"
	"github.com/karat-run/karat/internal/arch/glm4moe"
	gptoss "github.com/karat-run/karat/internal/arch/gpt-oss"
	"github.com/karat-run/karat/internal/arch/gpt2"
	"github.com/karat-run/karat/internal/arch/granite"
	"github.com/karat-run/karat/internal/arch/granitehybrid"
	"github.com/karat-run/karat/internal/arch/granitemoe"
	hunyuandense "github.com/karat-run/karat/internal/arch/hunyuan-dense"
	"github.com/karat-run/karat/internal/arch/hunyuanmoe"
	"github.com/karat-run/karat/internal/arch/hyv3"
	"github.com/karat-run/karat/internal/arch/jamba"
	"github.com/karat-run/karat/internal/arch/kimilinear"
	"github.com/karat-run/karat/internal/arch/lfm2"
	"github.com/karat-run/karat/internal/arch/llama"
	"github.com/karat-run/karat/internal/arch/llama4"
	"github.com/karat-run/karat/internal/arch/mamba2"
	"github.com/karat-run/karat/internal/arch/mimo2"
	"github.com/karat-run/karat/internal/arch/minimaxm2"
	"github.com/karat-run/karat/internal/arch/mistral3"
	"github.com/karat-run/karat/internal/arch/mistral4"
	modernbert "github.com/karat-run/karat/internal/arch/modern-bert"
	"github.com/karat-run/karat/internal/arch/nemotronh"
	nomicbert "github.com/karat-run/karat/internal/arch/nomic-bert"
	"github.com/karat-run/karat/internal/arch/olmo2"
	"github.com/karat-run/karat/internal/arch/olmoe"
	"github.com/karat-run/karat/internal/arch/olmohybrid"
	"github.com/karat-run/karat/internal/arch/phi2"
	"github.com/karat-run/karat/internal/arch/phi3"
	"github.com/karat-run/karat/internal/arch/phimoe"
	"github.com/karat-run/karat/internal/arch/pixtral"
	"github.com/karat-run/karat/internal/arch/qwen2"
	"github.com/karat-run/karat/internal/arch/qwen25vl"
	"github.com/karat-run/karat/internal/arch/qwen3"
	"github.com/karat-run/karat/internal/arch/qwen35"
	"github.com/karat-run/karat/internal/arch/qwen3moe"
	"github.com/karat-run/karat/internal/arch/qwen3vl"
	"github.com/karat-run/karat/internal/arch/seedoss"
	"github.com/karat-run/karat/internal/arch/siglip"
	"github.com/karat-run/karat/internal/arch/smollm3"
	"github.com/karat-run/karat/internal/arch/stablelm"
	"github.com/karat-run/karat/internal/arch/starcoder2"
	"github.com/karat-run/karat/internal/family"
)

// Families lists all, the one that others are compared with first.
var Families = []*family.Family{
	&llama.Family,
	&qwen2.Family,
	&qwen3.Family,
	&gemma3.Family,
	&gemma4.Family,
	&smollm3.Family,
	&gemma2.Family,
	&granite.Family,
	&gpt2.Family,
	&qwen3moe.Family,
	&cohere2.Family,
	&glm4.Family,
	&olmo2.Family,
	&deepseek2.Family,
	&deepseek2.Sparse,
	&deepseek2.GLM,
	&gptoss.Family,
	&mamba2.Family,
	&phi3.Family,
	&mistral3.Family,
	&glm4moe.Family,
	&granitehybrid.Family,
	&nemotronh.Family,
	&nemotronh.MoEFamily,
	&llama4.Family,
	&qwen35.Family,
	&falconh1.Family,
	&lfm2.Family,
	&lfm2.MoEFamily,
	&qwen35.MoEFamily,
	&gemmaembedding.Family,
	&modernbert.Family,
	&bert.Family,
	&starcoder2.Family,
	&exaone4.Family,
	&arcee.Family,
	&gemma.Family,
	&hunyuandense.Family,
	&ernie45.Family,
	&stablelm.Family,
	&falcon.Family,
	&granitemoe.Family,
	&olmoe.Family,
	&eurobert.Family,
	&nomicbert.Family,
	&afmoe.Family,
	&hyv3.Family,
	&exaonemoe.Family,
	&hunyuanmoe.Family,
	&ernie45moe.Family,
	&apertus.Family,
	&mistral4.Family,
	&jamba.Family,
	&mimo2.Family,
	&kimilinear.Family,
	&qwen35.NextFamily,
	&phimoe.Family,
	&minimaxm2.Family,
	&gemma3n.Family,
	&seedoss.Family,
	&olmohybrid.Family,
	&exaone.Family,
	&phi2.Family,
	&qwen2.VLFamily,
	&qwen3.VLFamily,
	&qwen3moe.VLFamily,
}

// Towers lists the parts of models that see.
var Towers = []*family.Tower{
	&qwen3vl.Tower,
	&qwen25vl.Tower,
	&siglip.AveragedTower,
	&siglip.ShuffledTower,
	&siglip.ResizedTower,
	&gemma4v.Tower,
	&pixtral.Tower,
}

// TowerOf returns the tower of config.json's model_type, nil if there is none.
func TowerOf(kind string) *family.Tower {
	for _, t := range Towers {
		if slices.Contains(t.Types, kind) {
			return t
		}
	}
	return nil
}

// ProjectorOf returns the tower of clip.projector_type, nil if there is none.
func ProjectorOf(name string) *family.Tower {
	for _, t := range Towers {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Find returns the family of GGUF's general.architecture, nil if there is none.
func Find(arch string) *family.Family {
	for _, f := range Families {
		if f.Name == arch {
			return f
		}
	}
	return nil
}

// OfType returns the family of config.json's model_type, and the type.
func OfType(name string) (*family.Family, *family.Type) {
	for _, f := range Families {
		for i := range f.Types {
			if f.Types[i].Name == name {
				return f, &f.Types[i]
			}
		}
	}
	return nil, nil
}

// OfClass returns the family of one of transformers' classes, whatever its head:
// LlamaForCausalLM, LlamaModel. Nil if there is none.
func OfClass(name string) *family.Family {
	for _, f := range Families {
		for _, t := range f.Types {
			if t.Class != "" && stem(t.Class) == stem(name) {
				return f
			}
		}
	}
	return nil
}

// stem is a class without its head.
func stem(class string) string {
	for _, head := range []string{"For", "LMHeadModel", "TextModel", "Model"} {
		class, _, _ = strings.Cut(class, head)
	}
	return class
}

// OfConfig is OfType of a configuration, which tells families that share a type. whole is the type of a model that
// sees, of which the configuration is the text's part.
func OfConfig(name, whole string, settings map[string]any) (*family.Family, *family.Type) {
	for _, f := range Families {
		for i := range f.Types {
			if t := &f.Types[i]; t.Name == name && t.If != "" && settings[t.If] != nil && settings[t.If] != false {
				return f, t
			}
		}
	}
	if t := TowerOf(whole); t != nil {
		for _, form := range t.Folder.Forms {
			f := Find(form.Arch)
			i := slices.IndexFunc(f.Types, func(t family.Type) bool { return t.Name == name })
			if i >= 0 && form.Type == whole {
				return f, &f.Types[i]
			}
		}
	}
	return OfType(name)
}

// Names lists the families in order of name.
func Names() (names []string) {
	for _, f := range Families {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}

// Supported lists the families for a message.
func Supported() string {
	var names []string
	for _, f := range Families {
		names = append(names, f.Name)
	}
	return list(names)
}

// SupportedTypes lists the types of config.json for a message, of which a text model's is named once.
func SupportedTypes() string {
	var names []string
	for _, f := range Families {
		for _, t := range f.Types {
			if name := strings.TrimSuffix(t.Name, "_text"); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return list(names)
}

// list is "a, b and c".
func list(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
