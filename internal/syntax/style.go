package syntax

// Form is how calls are written between their marks. A list of JSON objects, {"name": …, "arguments": {…}}, is read in
// any form.
type Form string

// The forms.
const (
	Object Form = ""       // {"name": "NAME", "arguments": {…}}, or a list of these
	Keyed  Form = "keyed"  // {"NAME": {…}}, or a list of these
	Named  Form = "named"  // NAME, a mark, {…}
	Tagged Form = "tagged" // marks around each name and value; strings as they are, other values as JSON
	Nested Form = "nested" // Tagged; the names are tags, and parts of values have tags of their own
	Python Form = "python" // NAME(KEY=VALUE, …), a list of these or lines
	Quoted Form = "quoted" // NAME{KEY:VALUE,…}, with Quote around strings
)

// Quote is around strings of the form Quoted.
const Quote = `<|"|>`

// Style is how a model writes calls when it is asked for some: First, the calls with Between between them, Last. A call
// is Name, the tool's name, Then, the arguments, After. The Syntax's first marks are around all that or, with Each,
// around each call. For calls that are read, white space beside the marks of Tagged does not count.
type Style struct {
	Form                 Form
	Each                 bool
	First, Between, Last string
	Name, Then, After    string
	Key, Value, End      string // of Tagged and Nested: around the name and the value of an argument
	Other                string // Value where the value is no string
	// of Named: what a name that is read comes behind, and what then ends the text before the arguments
	Before, Behind string
	Tail           string // of Named: what may come behind arguments that are read
	Single         bool   // there is one call alone
	Alone          bool   // no text comes before calls
}
