package mcp

// As is for the tests outside.
const As = as
