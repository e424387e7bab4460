// Pins the Go vulnerability database that `kaas-dev image audit` reads. Renew it in this directory:
// go get golang.org/x/vulndb@latest
module kaas/audit

go 1.26.0

require golang.org/x/vulndb v0.0.0-20261105234957-e22db6528018 // indirect
