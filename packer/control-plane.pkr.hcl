# Builds the control-plane OVA from a Packer pipeline. All the work is done by
# `kaas`; this template only gives it a place in such a pipeline.
#
#   packer init packer && packer build -var output=build packer

variable "spec" {
  type        = string
  default     = "image/specs/control-plane.toml"
  description = "Image specification to build."
}

variable "output" {
  type        = string
  default     = "build"
  description = "Directory that receives the OVA."
}

source "null" "build-host" {
  communicator = "none"
}

build {
  name    = "control-plane"
  sources = ["source.null.build-host"]

  provisioner "shell-local" {
    command = "kaas image build '${var.spec}' --output '${var.output}'"
  }
}
