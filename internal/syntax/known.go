package syntax

// Styles that several syntaxes have.
var (
	objectEach = Style{Each: true, Name: "\n{\"name\": \"", Then: `", "arguments": `, After: "}\n", Between: "\n"}
	objectList = Style{First: "[", Between: ", ", Last: "]", Name: `{"name": "`, Then: `", "arguments": `, After: "}"}
	objectBare = Style{Name: `{"name": "`, Then: `", "parameters": `, After: "}", Single: true}
	functions  = Style{Form: Tagged, Each: true, Between: "\n", Name: "\n<function=", Then: ">\n", After: "</function>\n",
		Key: "<parameter=", Value: ">\n", End: "\n</parameter>\n"}
	invokes = Style{Form: Tagged, Name: "\n<invoke name=\"", Then: "\">\n", After: "</invoke>", Last: "\n",
		Key: `<parameter name="`, Value: `">`, End: "</parameter>\n"}
)

// known is a row for each syntax: by the marks that a template has, what its models write.
var known = []struct {
	marks  []string // in the template
	syntax Syntax
}{
	{[]string{"<|channel|>analysis"}, Syntax{Open: "<|channel|>analysis<|message|>", Close: "<|end|>", Next: "<|start|>assistant", Lead: "<|start|>assistant", Header: "<|message|>",
		Calls:  []Marks{{"<|channel|>commentary to=", "<|call|>", true}, {"<|channel|>analysis to=", "<|call|>", true}, {"<|start|>assistant to=", "<|call|>", true}},
		Frame:  []string{"<|start|>assistant", "<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>", "<|channel|>commentary<|message|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"},
		Answer: Marks{Begin: "<|channel|>final<|message|>"},
		Style:  Style{Form: Named, Name: "functions.", Then: " <|constrain|>json<|message|>", Before: "functions.", Behind: "<|message|>", Single: true, Alone: true}}},
	{[]string{"<|tool_call:begin|>", "<|think|>"}, Syntax{Open: "<|think|>", Close: "<|end|>", Next: "<|begin|>assistant",
		Calls:  []Marks{{Begin: "<|tool_call:begin|>", End: "<|tool_call:end|>"}},
		Frame:  []string{"<|begin|>assistant", "<|content|>", "<|end|>", "<|tool_calls|>", "<|calls|>"},
		Answer: Marks{Begin: "<|content|>"},
		Style: Style{Form: Named, Each: true, First: "<|tool_calls|>", Name: "a1b2c3d4e5<|tool_call:name|>", Then: "<|tool_call:args|>",
			Before: "<|tool_call:name|>", Behind: "<|tool_call:args|>", Alone: true}}},
	{[]string{"<|tool_call>"}, Syntax{Calls: []Marks{{Begin: "<|tool_call>", End: "<tool_call|>"}}, Style: Style{Form: Quoted, Each: true, Name: "call:"}}},
	{[]string{"<|START_ACTION|>"}, Syntax{Calls: []Marks{{Begin: "<|START_ACTION|>", End: "<|END_ACTION|>"}},
		Frame:  []string{"<|START_RESPONSE|>", "<|END_RESPONSE|>"},
		Answer: Marks{Begin: "<|START_RESPONSE|>", End: "<|END_RESPONSE|>"},
		Style:  Style{First: "[", Between: ", ", Last: "]", Name: `{"tool_name": "`, Then: `", "parameters": `, After: "}"}}},
	{[]string{"Action:", `"tool_name"`}, Syntax{Calls: []Marks{{Begin: "Action:\n```json", End: "```"}, {Begin: "Action: ```json", End: "```"}},
		Style: Style{First: "\n[", Between: ", ", Last: "]", Name: `{"tool_name": "`, Then: `", "parameters": `, After: "}"}}},
	{[]string{"<|/tool_call|>"}, Syntax{Calls: []Marks{{Begin: "<|tool_call|>", End: "<|/tool_call|>"}},
		Style: Style{Each: true, Name: `{"name": "`, Then: `", "arguments": `, After: "}"}}},
	{[]string{"<|tool_call|>"}, Syntax{Calls: []Marks{{Begin: "<|tool_call|>"}}, Style: objectList}},
	{[]string{"[TOOL_CALLS]", "[ARGS]"}, Syntax{IDs: NineIDs, Calls: []Marks{{Begin: "[TOOL_CALLS]"}}, Style: Style{Form: Named, Each: true, Then: "[ARGS]", Behind: "[ARGS]"}}},
	{[]string{"[TOOL_CALLS]"}, Syntax{IDs: NineIDs, Calls: []Marks{{Begin: "[TOOL_CALLS]"}}, Style: Style{Form: Named, Behind: "[ARGS]",
		First: "[", Between: ", ", Last: "]", Name: `{"name": "`, Then: `", "arguments": `, After: "}"}}},
	{[]string{"<｜tool▁call▁begin｜>", "```json"}, Syntax{Calls: []Marks{{Begin: "<｜tool▁call▁begin｜>", End: "<｜tool▁call▁end｜>"}},
		Frame: []string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
		Style: Style{Form: Named, Each: true, First: "<｜tool▁calls▁begin｜>", Between: "\n", Last: "<｜tool▁calls▁end｜>", Name: "function<｜tool▁sep｜>", Then: "\n```json\n", After: "\n```",
			Before: "<｜tool▁sep｜>", Behind: "```json", Tail: "```"}}},
	{[]string{"<｜tool▁call▁begin｜>"}, Syntax{Calls: []Marks{{Begin: "<｜tool▁call▁begin｜>", End: "<｜tool▁call▁end｜>"}},
		Frame: []string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
		Style: Style{Form: Named, Each: true, First: "<｜tool▁calls▁begin｜>", Last: "<｜tool▁calls▁end｜>", Then: "<｜tool▁sep｜>", Behind: "<｜tool▁sep｜>"}}},
	{[]string{"｜DSML｜", "function_calls>"}, Syntax{Token: "｜DSML｜", Calls: []Marks{{Begin: "<｜DSML｜function_calls>", End: "</｜DSML｜function_calls>"}}, Style: dsml}},
	{[]string{"｜DSML｜"}, Syntax{Token: "｜DSML｜", Calls: []Marks{{Begin: "<｜DSML｜tool_calls>", End: "</｜DSML｜tool_calls>"}}, Style: dsml}},
	{[]string{"<|tool_call_argument_begin|>"}, Syntax{IDs: IndexedIDs, Calls: []Marks{{Begin: "<|tool_call_begin|>", End: "<|tool_call_end|>"}},
		Frame: []string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
		Style: Style{Form: Named, Each: true, First: "<|tool_calls_section_begin|>", Last: "<|tool_calls_section_end|>", Name: "functions.", Then: ":0<|tool_call_argument_begin|>",
			Before: "functions.", Behind: "<|tool_call_argument_begin|>"}}},
	{[]string{"<|tools_prefix|>"}, Syntax{Calls: []Marks{{Begin: "<|tools_prefix|>", End: "<|tools_suffix|>"}},
		Style: Style{Form: Keyed, First: "[", Between: ", ", Last: "]", Name: `{"`, Then: `": `, After: "}"}}},
	{[]string{"<|function_call|>"}, Syntax{Calls: []Marks{{Begin: "<|function_call|>"}}, Style: Style{Name: `{"name": "`, Then: `", "arguments": `, After: "}", Single: true}}},
	{[]string{"<TOOLCALL>"}, Syntax{Calls: []Marks{{Begin: "<TOOLCALL>", End: "</TOOLCALL>"}}, Style: objectList}},
	{[]string{"<tool_calls>"}, Syntax{Calls: []Marks{{Begin: "<tool_calls>", End: "</tool_calls>"}}, Style: objectList}},
	{[]string{"functools["}, Syntax{Calls: []Marks{{Begin: "functools"}}, Style: objectList}},
	{[]string{"List of tools: "}, Syntax{Calls: []Marks{{Begin: "<|tool_call_start|>", End: "<|tool_call_end|>"}},
		Style: Style{Form: Python, First: "[", Between: ", ", Last: "]", Then: "(", After: ")"}}},
	{[]string{"<function_calls>"}, Syntax{Calls: []Marks{{Begin: "<function_calls>", End: "</function_calls>"}},
		Style: Style{Form: Python, First: "\n", Between: "\n", Last: "\n", Then: "(", After: ")"}}},
	{[]string{"<seed:tool_call>"}, Syntax{Calls: []Marks{{Begin: "<seed:tool_call>", End: "</seed:tool_call>"}},
		Style: Style{Form: Tagged, Each: true, Between: "\n", Name: "\n<function=", Then: ">\n", After: "</function>\n", Key: "<parameter=", Value: ">", End: "</parameter>\n"}}},
	{[]string{"<minimax:tool_call>"}, Syntax{Calls: []Marks{{Begin: "<minimax:tool_call>", End: "</minimax:tool_call>"}}, Style: invokes}},
	{[]string{"]<]minimax[>["}, Syntax{Token: "]<]minimax[>[", Calls: []Marks{{Begin: "]<]minimax[>[<tool_call>", End: "]<]minimax[>[</tool_call>"}},
		Style: Style{Form: Nested, Name: "\n]<]minimax[>[<invoke name=\"", Then: `">`, After: "]<]minimax[>[</invoke>", Last: "\n",
			Key: "]<]minimax[>[<", Value: ">", End: "]<]minimax[>[</"}}},
	{[]string{"<tool_call>", "<arg_key>"}, Syntax{Calls: []Marks{{Begin: "<tool_call>", End: "</tool_call>"}},
		Style: Style{Form: Tagged, Each: true, Between: "\n", Then: "\n", Key: "<arg_key>", Value: "</arg_key>\n<arg_value>", End: "</arg_value>\n"}}},
	{[]string{"<tool_call>", "<function="}, Syntax{Calls: []Marks{{Begin: "<tool_call>", End: "</tool_call>"}}, Style: functions}},
	{[]string{"<tool_call>"}, Syntax{Calls: []Marks{{Begin: "<tool_call>", End: "</tool_call>"}}, Style: objectEach}},
	{[]string{"<function="}, Syntax{Calls: []Marks{{Begin: "<function=", End: "</function>"}}, Style: Style{Form: Named, Each: true, Then: ">", Behind: ">"}}},
	{[]string{">>>all"}, Syntax{Lead: ">>>", Calls: []Marks{{Begin: ">>>"}}, Frame: []string{">>>all\n"}, Answer: Marks{Begin: "all\n"},
		Style: Style{Form: Named, Between: ">>>", Then: "\n", Alone: true}}},
	{[]string{"func_name1(param"}, Syntax{Calls: []Marks{{Begin: "<|python_start|>", End: "<|python_end|>"}}, Bare: true,
		Style: Style{Form: Python, First: "[", Between: ", ", Last: "]", Then: "(", After: ")"}}},
	{[]string{"<|python_start|>"}, Syntax{Calls: []Marks{{Begin: "<|python_start|>", End: "<|python_end|>"}}, Bare: true, Style: objectBare}},
	{[]string{"<|python_tag|>"}, Syntax{Calls: []Marks{{Begin: "<|python_tag|>"}}, Bare: true, Style: objectBare}},
	{[]string{`"parameters": dictionary of argument name`}, Syntax{Bare: true, Style: objectBare}},
	{[]string{"在调用上述函数时"}, Syntax{Bare: true, Style: Style{Form: Named, Then: "\n", Single: true}}},
}

var dsml = Style{Form: Tagged, Name: "\n<｜DSML｜invoke name=\"", Then: "\">\n", After: "</｜DSML｜invoke>", Last: "\n",
	Key: `<｜DSML｜parameter name="`, Value: `" string="true">`, Other: `" string="false">`, End: "</｜DSML｜parameter>\n"}

// thinking is a row for each way to write reasoning.
var thinking = []struct {
	mark, open, close string
	frame             []string
}{
	{mark: "<|channel>", open: "<|channel>thought", close: "<channel|>"},
	{mark: "<|START_THINKING|>", open: "<|START_THINKING|>", close: "<|END_THINKING|>"},
	{mark: "[THINK]", open: "[THINK]", close: "[/THINK]"},
	{mark: "[BEGIN FINAL RESPONSE]", open: "Here are my reasoning steps:", close: "[BEGIN FINAL RESPONSE]", frame: []string{"[END FINAL RESPONSE]"}},
	{mark: "<|inner_prefix|>", open: "<|inner_prefix|>", close: "<|inner_suffix|>"},
	{mark: "<seed:think>", open: "<seed:think>", close: "</seed:think>"},
	{mark: "<mm:think>", open: "<mm:think>", close: "</mm:think>"},
	{mark: "<think>", open: "<think>", close: "</think>"},
	{mark: "</think>", open: "<think>", close: "</think>"},
}
