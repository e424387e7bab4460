// The go command wants a go.mod to mark the module's root. The real ones are 1.37.mod and 1.36.mod, used with -modfile.
module kubernetes

go 1.26.0
