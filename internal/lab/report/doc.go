// Package report writes a diagnosis for those who read it: as text for a terminal,
// as one HTML page that can be mailed, as Markdown, and as JUnit's XML for CI.
//
// Names, texts and numbers of a diagnosis come from somebody's dump. Whatever they
// are, each form stays well-formed, and its size bounded but for the JSON.
package report
