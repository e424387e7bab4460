# Adds the parts of a site (packages, files, CAs, drivers) to the image of the control plane or of the tenants, and
# writes an OVA. `kaas-dev` does all the work; this template gives it a place in a Packer pipeline. From the top of a clone,
# as root:
#
#   packer build packer/site.pkr.hcl
#   packer build -var spec=packer/site/tenant.toml -var version=0.1.1 -var output=build packer/site.pkr.hcl
#
# packer/site/site.toml lists the parts of the site.

variable "spec" {
  type        = string
  default     = "packer/site/control-plane.toml"
  description = "Specification to build: it includes that of an appliance and the parts of the site."
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
      # The site's own packages are locked once, on top of the appliance's locked packages. Commit the lock file;
      # without it the next build takes newer packages.
      "test -e \"$${SPEC%.toml}.lock\" || kaas-dev image lock --keep-included \"$SPEC\"",
      "set -- image build \"$SPEC\" --to-directory \"$OUTPUT\"",
      "test -z \"$IMAGE_VERSION\" || set -- \"$@\" --version \"$IMAGE_VERSION\"",
      "test -z \"$SIGN_KEY\" || set -- \"$@\" --sign-key \"$SIGN_KEY\" --sign-certificate \"$SIGN_CERTIFICATE\"",
      "kaas-dev \"$@\"",
    ]
  }
}
