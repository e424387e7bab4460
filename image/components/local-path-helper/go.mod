module local-path-helper

go 1.26.0
