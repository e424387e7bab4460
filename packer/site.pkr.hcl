# Adds what a site needs (packages, files, authorities, drivers) to the control plane's or the tenants' image, and leaves an
# OVA. All the work is done by `kaas`; this template gives it a place in a Packer pipeline. From the top of a clone, as root:
#
#   packer build packer/site.pkr.hcl
#   packer build -var spec=packer/site/tenant.toml -var version=0.1.1 -var output=build packer/site.pkr.hcl
#
# What a site adds is in packer/site/site.toml.

variable "spec" {
  type        = string
  default     = "packer/site/control-plane.toml"
  description = "Specification to build: it includes one of the appliances' and what the site adds."
}

variable "version" {
  type        = string
  default     = ""
  description = "Version of the image; empty for that of the appliance. An image swap takes newer ones only."
}

variable "sign_key" {
  type        = string
  default     = ""
  description = "Private key to sign with, in PEM; empty for a development image."
}

variable "sign_certificate" {
  type        = string
  default     = ""
  description = "The key's certificate, in PEM."
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
  sources = ["source.null.build-host"]

  provisioner "shell-local" {
    environment_vars = [
      "SPEC=${var.spec}",
      "IMAGE_VERSION=${var.version}",
      "SIGN_KEY=${var.sign_key}",
      "SIGN_CERTIFICATE=${var.sign_certificate}",
      "OUTPUT=${var.output}",
    ]
    inline = [
      # The site's own packages are locked once, over the appliance's as they are. Commit the lock file; without it the next
      # build takes newer packages.
      "test -e \"$${SPEC%.toml}.lock\" || kaas image lock --keep-included \"$SPEC\"",
      "set -- image build \"$SPEC\" --output \"$OUTPUT\"",
      "test -z \"$IMAGE_VERSION\" || set -- \"$@\" --version \"$IMAGE_VERSION\"",
      "test -z \"$SIGN_KEY\" || set -- \"$@\" --sign-key \"$SIGN_KEY\" --sign-certificate \"$SIGN_CERTIFICATE\"",
      "kaas \"$@\"",
    ]
  }
}
