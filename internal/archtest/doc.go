// Package archtest holds the shape of the source: which package may import
// which, and how large things may grow. Its test reads the whole module and
// fails on the first commit that breaks a rule, so that a rule is a fact and
// not a wish. Each rule is also tested on a made-up module that breaks it.
//
// The rules are about code that ships; test files may import what they like,
// and are held only to the budgets.
package archtest
