package archtest

// Exceptions are violations that remain to be removed. A test fails if one of them is no longer needed.
var Exceptions = []string{}
