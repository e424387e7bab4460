module vcenter

go 1.25.0

toolchain go1.26.8

require github.com/vmware/govmomi v0.56.0

require github.com/google/uuid v1.6.0 // indirect
