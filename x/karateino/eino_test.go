package karateino_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"testing"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"
	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/talker"
	"github.com/karat-run/karat/x/karateino"
)

func Example() {
	ctx := context.Background()
	m, err := karat.Load(ctx, talker.Demo(), karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	chat := karateino.NewChatModel(m, karat.GenerateOptions{})
	stream, err := chat.Stream(ctx, []*schema.Message{schema.UserMessage("What is the capital of Egypt?")},
		model.WithTemperature(0))
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Content)
		if meta := piece.ResponseMeta; meta != nil {
			fmt.Println(" -", meta.FinishReason)
		}
	}
	vectors, err := karateino.NewEmbedder(m, karat.EmbedOptions{Pooling: karat.PoolMean}).EmbedStrings(ctx,
		[]string{"Cairo", "Oslo"})
	fmt.Println(len(vectors), err)
	// Output:
	// The capital of Egypt is Cairo. - stop
	// 2 <nil>
}

var weather = []*schema.ToolInfo{{Name: "weather", Desc: "Tells the weather of a city.", ParamsOneOf: schema.NewParamsOneOfByParams(
	map[string]*schema.ParameterInfo{"city": {Type: schema.String, Required: true, Enum: []string{"Oslo"}}})}}

func parrot(t *testing.T, text string) *karat.Model {
	m, err := talker.Parrot(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// forecast is the tool.
type forecast struct{}

func (forecast) Info(context.Context) (*schema.ToolInfo, error) { return weather[0], nil }

func (forecast) InvokableRun(_ context.Context, arguments string, _ ...tool.Option) (string, error) {
	return "rain for " + arguments, nil
}

// TestAgent: Eino's own agent sees the model's call and calls the tool.
func TestAgent(t *testing.T) {
	caller, teller := karateino.NewChatModel(parrot(t, talker.Call), karat.GenerateOptions{}), karateino.NewChatModel(parrot(t, talker.Told), karat.GenerateOptions{})
	agent, err := react.NewAgent(t.Context(), &react.AgentConfig{ToolCallingModel: &pair{first: caller, then: teller},
		ToolsConfig: compose.ToolsNodeConfig{Tools: []tool.BaseTool{forecast{}}}})
	if err != nil {
		t.Fatal(err)
	}
	talk := []*schema.Message{schema.UserMessage("How is the weather in Oslo?")}
	said, err := agent.Generate(t.Context(), talk)
	if err != nil || said.Content != "It rains in Oslo." || said.ReasoningContent != "So it is." {
		t.Fatalf("%v, %v", said, err)
	}
}

// pair has one model call and another answer.
type pair struct{ first, then model.ToolCallingChatModel }

func (p *pair) of(talk []*schema.Message) model.ToolCallingChatModel {
	if talk[len(talk)-1].Role == schema.Tool {
		if got := talk[len(talk)-1].Content; got != `rain for {"city":"Oslo"}` {
			panic(got)
		}
		return p.then
	}
	return p.first
}

func (p *pair) Generate(ctx context.Context, talk []*schema.Message, o ...model.Option) (*schema.Message, error) {
	return p.of(talk).Generate(ctx, talk, o...)
}

func (p *pair) Stream(ctx context.Context, talk []*schema.Message, o ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	return p.of(talk).Stream(ctx, talk, o...)
}

func (p *pair) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	first, err := p.first.WithTools(tools)
	if err != nil {
		return nil, err
	}
	then, err := p.then.WithTools(tools)
	return &pair{first, then}, err
}

// TestCalls: pieces of a stream add up to the whole answer, and a required call comes from a model that would not call.
func TestCalls(t *testing.T) {
	talk := []*schema.Message{schema.SystemMessage("Be brief."), schema.UserMessage("How is the weather in Oslo?")}
	seen := 0
	with, err := karateino.NewChatModel(parrot(t, talker.Call), karat.GenerateOptions{OnToken: func(karat.Token) { seen++ }}).WithTools(weather)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := with.Generate(t.Context(), talk)
	if err != nil {
		t.Fatal(err)
	}
	if n := whole.ResponseMeta.Usage.CompletionTokens; seen != n {
		t.Errorf("OnToken sees %d of %d tokens", seen, n)
	}
	stream, err := with.Stream(t.Context(), talk)
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := schema.ConcatMessageStream(stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*schema.Message{whole, pieces} {
		if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "weather" || m.ToolCalls[0].Function.Arguments != `{"city":"Oslo"}` ||
			m.ResponseMeta.FinishReason != "tool_calls" || m.Content != "Let me see." || m.ReasoningContent != "I look." ||
			m.ResponseMeta.Usage.CompletionTokens == 0 || m.ResponseMeta.Usage.PromptTokens == 0 {
			t.Errorf("the answer is %+v", m)
		}
	}
	teller := karateino.NewChatModel(parrot(t, talker.Told), karat.GenerateOptions{})
	forced, err := teller.Generate(t.Context(), talk, model.WithTools(weather), model.WithToolChoice(schema.ToolChoiceForced, "weather"))
	if err != nil || len(forced.ToolCalls) != 1 || forced.ToolCalls[0].Function.Arguments != `{"city":"Oslo"}` {
		t.Errorf("forced: %+v, %v", forced, err)
	}
	none, err := with.Generate(t.Context(), talk, model.WithToolChoice(schema.ToolChoiceForbidden))
	if err != nil || len(none.ToolCalls) != 0 || !strings.Contains(none.Content, "<tool_call>") {
		t.Errorf("forbidden: %+v, %v", none, err)
	}
	cut, err := teller.Generate(t.Context(), talk, model.WithMaxTokens(3))
	if err != nil || cut.ResponseMeta.FinishReason != "length" || cut.ResponseMeta.Usage.CompletionTokens != 3 {
		t.Errorf("cut: %+v, %v", cut, err)
	}
}

// TestCancel: a context and a closed stream end an endless answer.
func TestCancel(t *testing.T) {
	m := parrot(t, talker.Endless)
	chat := karateino.NewChatModel(m, karat.GenerateOptions{MaxTokens: -1})
	talk := []*schema.Message{schema.UserMessage("Go")}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := chat.Stream(ctx, talk)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			cancel()
		}
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if stream, err = chat.Stream(t.Context(), talk); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	for m.Stats().Running+m.Stats().Queued > 0 { // the answer ends, else this never does
	}
}

// TestErrors: what is not taken is an error with its place.
func TestErrors(t *testing.T) {
	chat := karateino.NewChatModel(parrot(t, talker.Told), karat.GenerateOptions{})
	far := "https://localhost/a.png"
	user := schema.UserMessage("a")
	for want, ask := range map[string]func() (*schema.Message, error){
		"message 0: a picture needs a data: URL": func() (*schema.Message, error) {
			return chat.Generate(t.Context(), []*schema.Message{{Role: schema.User, UserInputMultiContent: []schema.MessageInputPart{
				{Type: schema.ChatMessagePartTypeImageURL, Image: &schema.MessageInputImage{MessagePartCommon: schema.MessagePartCommon{URL: &far}}}}}})
		},
		`there is no tool "other"`: func() (*schema.Message, error) {
			return chat.Generate(t.Context(), []*schema.Message{user}, model.WithTools(weather), model.WithToolChoice(schema.ToolChoiceForced, "other"))
		},
		"a call is required": func() (*schema.Message, error) {
			return chat.Generate(t.Context(), []*schema.Message{user}, model.WithToolChoice(schema.ToolChoiceForced))
		},
		"emperature": func() (*schema.Message, error) {
			return chat.Generate(t.Context(), []*schema.Message{user}, model.WithTemperature(-1))
		},
	} {
		if _, err := ask(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}
