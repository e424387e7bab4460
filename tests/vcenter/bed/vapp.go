package bed

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// The transport by VMware Tools, and the key under which a guest finds its environment then: vSphere's "OVF Environment".
const (
	transport   = "com.vmware.guestInfo"
	environment = "guestinfo.ovfEnv"
)

// vApp is a machine's vApp configuration, if it has one.
func vApp(machine *vcsim.VirtualMachine) *types.VmConfigInfo {
	if machine.Config.VAppConfig == nil {
		return nil
	}
	return machine.Config.VAppConfig.GetVmConfigInfo()
}

// patchVApp sets what vcsim leaves out of a vApp configuration: all but properties and products.
func patchVApp(machine *vcsim.VirtualMachine, spec types.BaseVmConfigSpec) {
	if spec == nil || vApp(machine) == nil {
		return
	}
	from, to := spec.GetVmConfigSpec(), vApp(machine)
	if from.IpAssignment != nil {
		to.IpAssignment = *from.IpAssignment
	}
	if len(from.Eula) > 0 {
		to.Eula = from.Eula
	}
	if len(from.OvfEnvironmentTransport) > 0 {
		// "A single empty string clears the list": the reference of VmConfigSpec.
		to.OvfEnvironmentTransport = slices.DeleteFunc(from.OvfEnvironmentTransport, func(s string) bool { return s == "" })
	}
	if from.InstallBootRequired != nil {
		to.InstallBootRequired = *from.InstallBootRequired
	}
	if from.InstallBootStopDelay != 0 {
		to.InstallBootStopDelay = from.InstallBootStopDelay
	}
}

// withoutPasswords is a value of a machine's property as vCenter shows it: "for properties of type 'password', the value field and
// default value field will always be returned as an empty string when queried" (reference of VAppPropertyInfo).
func withoutPasswords(of types.AnyType) types.AnyType {
	switch of := of.(type) {
	case types.ArrayOfVAppPropertyInfo:
		hidden := append([]types.VAppPropertyInfo{}, of.VAppPropertyInfo...)
		for i := range hidden {
			if strings.HasPrefix(hidden[i].Type, "password") {
				hidden[i].Value, hidden[i].DefaultValue = "", ""
			}
		}
		return types.ArrayOfVAppPropertyInfo{VAppPropertyInfo: hidden}
	case *types.VmConfigInfo:
		shown := withoutPasswords(*of).(types.VmConfigInfo)
		return &shown
	case types.VmConfigInfo:
		of.Property = withoutPasswords(types.ArrayOfVAppPropertyInfo{VAppPropertyInfo: of.Property}).(types.ArrayOfVAppPropertyInfo).VAppPropertyInfo
		return of
	case *types.VirtualMachineConfigInfo:
		if of == nil {
			return of
		}
		shown := withoutPasswords(*of).(types.VirtualMachineConfigInfo)
		return &shown
	case types.VirtualMachineConfigInfo:
		if of.VAppConfig != nil {
			shown := withoutPasswords(*of.VAppConfig.GetVmConfigInfo()).(types.VmConfigInfo)
			of.VAppConfig = &shown
		}
		return of
	}
	return of
}

func value(property types.VAppPropertyInfo) string {
	if property.Value != "" {
		return property.Value
	}
	return property.DefaultValue
}

var leastLength = regexp.MustCompile(`^(?:string|password)\((\d+)\.\.`)

// missing is the fault of a property that must have a value and has none: vCenter powers such a machine on in no case.
func missing(machine *vcsim.VirtualMachine) fault {
	if vApp(machine) == nil {
		return nil
	}
	for _, property := range vApp(machine).Property {
		least := leastLength.FindStringSubmatch(property.Type)
		if least == nil {
			continue
		}
		if length, err := strconv.Atoi(least[1]); err == nil && len(value(property)) < length {
			return &types.InvalidPropertyValue{VAppPropertyFault: types.VAppPropertyFault{
				Id: property.Id, Category: property.Category, Label: property.Label, Type: property.Type, Value: value(property),
			}}
		}
	}
	return nil
}

// render makes the environment that vCenter puts into guestinfo at each power-on of a machine with that transport, or "". Its
// form is that of DMTF DSP0243, 11, with the section on adapters that VMware adds.
func (w *world) render(machine *vcsim.VirtualMachine) string {
	config := vApp(machine)
	if config == nil || !slices.Contains(config.OvfEnvironmentTransport, transport) {
		return ""
	}
	out := new(strings.Builder)
	quoted := func(text string) string {
		out := new(strings.Builder)
		// A strings.Builder takes everything.
		_ = xml.EscapeText(out, []byte(text))
		return out.String()
	}
	out.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" ` +
		`xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:oe="http://schemas.dmtf.org/ovf/environment/1" ` +
		`xmlns:ve="http://www.vmware.com/schema/ovfenv" oe:id="" ve:vCenterId="` + quoted(machine.Self.Value) + `">` + "\n")
	out.WriteString("  <PlatformSection>\n    <Kind>VMware ESXi</Kind>\n    <Version>8.0.3</Version>\n    <Vendor>VMware, Inc.</Vendor>\n" +
		"    <Locale>en</Locale>\n  </PlatformSection>\n  <PropertySection>\n")
	for _, property := range config.Property {
		key := property.Id
		if property.ClassId != "" {
			key = property.ClassId + "." + key
		}
		if property.InstanceId != "" {
			key += "." + property.InstanceId
		}
		fmt.Fprintf(out, "    <Property oe:key=\"%s\" oe:value=\"%s\"/>\n", quoted(key), quoted(value(property)))
	}
	out.WriteString("  </PropertySection>\n  <ve:EthernetAdapterSection>\n")
	for _, device := range devices(machine).SelectByType((*types.VirtualEthernetCard)(nil)) {
		card := device.(types.BaseVirtualEthernetCard).GetVirtualEthernetCard()
		fmt.Fprintf(out, "    <ve:Adapter ve:mac=\"%s\" ve:network=\"%s\" ve:unitNumber=\"%d\"/>\n",
			quoted(card.MacAddress), quoted(w.networkOf(card)), *card.UnitNumber)
	}
	out.WriteString("  </ve:EthernetAdapterSection>\n</Environment>\n")
	return out.String()
}

// setExtra sets or removes a key of a machine's extraConfig.
func (w *world) setExtra(ctx *vcsim.Context, machine *vcsim.VirtualMachine, key, value string) {
	w.registry.WithLock(ctx, machine, func() {
		left := without(machine.Config.ExtraConfig, key)
		if value != "" {
			left = append(left, &types.OptionValue{Key: key, Value: value})
		}
		w.registry.Update(ctx, machine, []types.PropertyChange{{Name: "config.extraConfig", Val: left}})
	})
}

// without leaves a key out of options.
func without(options []types.BaseOptionValue, key string) []types.BaseOptionValue {
	var left []types.BaseOptionValue
	for _, option := range options {
		if option.GetOptionValue().Key != key {
			left = append(left, option)
		}
	}
	return left
}

// guestinfo is what a guest reads of its extraConfig.
func guestinfo(machine *vcsim.VirtualMachine) map[string]string {
	found := map[string]string{}
	for _, option := range machine.Config.ExtraConfig {
		option := option.GetOptionValue()
		if key, is := strings.CutPrefix(option.Key, "guestinfo."); is {
			found[key] = fmt.Sprint(option.Value)
		}
	}
	return found
}
