# Control-plane nodes by Terraform. Set VSPHERE_SERVER, VSPHERE_USER and VSPHERE_PASSWORD, and the deployment secret in
# TF_VAR_deployment_secret. Before the first `kaas control upgrade`, replace the resource as docs/install/tools.md describes.
terraform {
  required_providers {
    vsphere = {
      source = "vmware/vsphere"
    }
  }
}

variable "deployment_secret" {
  type      = string
  sensitive = true
}

variable "nodes" {
  type = map(string)
  default = {
    cp1 = "10.20.30.11"
    cp2 = "10.20.30.12"
    cp3 = "10.20.30.13"
  }
}

data "vsphere_datacenter" "here" {
  name = "Datacenter"
}

data "vsphere_compute_cluster" "cluster" {
  name          = "Cluster"
  datacenter_id = data.vsphere_datacenter.here.id
}

data "vsphere_host" "first" {
  name          = "esxi1.example.com"
  datacenter_id = data.vsphere_datacenter.here.id
}

data "vsphere_datastore" "disks" {
  name          = "datastore1"
  datacenter_id = data.vsphere_datacenter.here.id
}

data "vsphere_network" "management" {
  name          = "VM Network"
  datacenter_id = data.vsphere_datacenter.here.id
}

# The hardware that the OVA describes.
data "vsphere_ovf_vm_template" "image" {
  name             = "kaas-control-plane"
  resource_pool_id = data.vsphere_compute_cluster.cluster.resource_pool_id
  datastore_id     = data.vsphere_datastore.disks.id
  host_system_id   = data.vsphere_host.first.id
  local_ovf_path   = "kaas-control-plane-0.2.0.ova"
  ovf_network_map = {
    "VM Network" = data.vsphere_network.management.id
  }
}

resource "vsphere_virtual_machine" "node" {
  for_each = var.nodes

  name             = each.key
  datacenter_id    = data.vsphere_datacenter.here.id
  resource_pool_id = data.vsphere_compute_cluster.cluster.resource_pool_id
  datastore_id     = data.vsphere_datastore.disks.id
  host_system_id   = data.vsphere_host.first.id
  folder           = "kaas/control"
  num_cpus         = data.vsphere_ovf_vm_template.image.num_cpus
  memory           = data.vsphere_ovf_vm_template.image.memory
  guest_id         = data.vsphere_ovf_vm_template.image.guest_id
  firmware         = data.vsphere_ovf_vm_template.image.firmware
  scsi_type        = data.vsphere_ovf_vm_template.image.scsi_type

  network_interface {
    network_id = data.vsphere_network.management.id
  }

  ovf_deploy {
    local_ovf_path    = data.vsphere_ovf_vm_template.image.local_ovf_path
    disk_provisioning = "thin"
    ovf_network_map   = data.vsphere_ovf_vm_template.image.ovf_network_map
  }

  vapp {
    properties = {
      "node-name"           = each.key
      "address"             = "${each.value}/24"
      "gateway"             = "10.20.30.1"
      "control-nodes"       = join(",", [for name, address in var.nodes : "${name}=${address}"])
      "api-vip"             = "10.20.30.10"
      "deployment-secret"   = var.deployment_secret
      # Replace this key by yours. The owner of its private key may log in as "admin".
      "ssh-authorized-keys" = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAMRuvzRF01LdOXikbVk9NHaLBNhwHeESbwCnTN+dPTR anna@example.com"
    }
  }

  cdrom {
    client_device = true
  }

  # Nodes are asked whether they are ready, not VMware Tools.
  wait_for_guest_net_timeout = 0
  wait_for_guest_ip_timeout  = 0

  lifecycle {
    # The form is read once. To change a value here must not restart a node.
    ignore_changes  = [vapp[0].properties, host_system_id]
    prevent_destroy = true
  }
}
