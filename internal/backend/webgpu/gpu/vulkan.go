//go:build !nogpu && ((linux && !android) || windows) && (amd64 || arm64)

package gpu

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/go-webgpu/goffi/ffi"
	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/vulkan"
	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// driver is Vulkan's handles of an adapter. The library keeps them private: if a later version renames them, memory
// and matrix units are unknown, and a test fails.
type driver struct {
	instance vk.Instance
	device   vk.PhysicalDevice
	commands *vk.Commands
}

// driverOf returns the handles of an adapter, or false.
func driverOf(a hal.Adapter) (d driver, ok bool) {
	v, ok := a.(*vulkan.Adapter)
	if !ok {
		return d, false
	}
	of := reflect.ValueOf(v).Elem()
	device, instance := of.FieldByName("physicalDevice"), of.FieldByName("instance")
	if !device.IsValid() || !device.CanUint() || !instance.IsValid() || instance.Kind() != reflect.Pointer ||
		instance.IsNil() {
		return d, false
	}
	handle, commands := instance.Elem().FieldByName("handle"), instance.Elem().FieldByName("cmds")
	if !handle.IsValid() || !handle.CanUint() || !commands.IsValid() ||
		commands.Type() != reflect.TypeFor[vk.Commands]() {
		return d, false
	}
	return driver{vk.Instance(handle.Uint()), vk.PhysicalDevice(device.Uint()),
		(*vk.Commands)(commands.Addr().UnsafePointer())}, true
}

// command returns the place of a command's address, or nil.
func (d driver) command(name string) *unsafe.Pointer {
	f := reflect.ValueOf(d.commands).Elem().FieldByName(name)
	if !f.IsValid() || f.Kind() != reflect.UnsafePointer {
		return nil
	}
	return (*unsafe.Pointer)(f.Addr().UnsafePointer())
}

// memoryOf returns the size of the largest heap of an adapter's own memory; 0 is unknown. WebGPU does not say.
func memoryOf(a hal.Adapter) (bytes int64) {
	d, ok := driverOf(a)
	if !ok {
		return 0
	}
	var all vk.PhysicalDeviceMemoryProperties
	d.commands.GetPhysicalDeviceMemoryProperties(d.device, &all)
	for _, h := range all.MemoryHeaps[:min(int(all.MemoryHeapCount), len(all.MemoryHeaps))] {
		if vk.MemoryHeapFlagBits(h.Flags)&vk.MemoryHeapDeviceLocalBit != 0 && h.Size < 1<<62 {
			bytes = max(bytes, int64(h.Size))
		}
	}
	return bytes
}

// unitsExtension and sizesExtension are the extensions of Vulkan for matrix units, and for the sizes of subgroups.
const (
	unitsExtension = "VK_KHR_cooperative_matrix"
	sizesExtension = "VK_EXT_subgroup_size_control"
)

// matrixFeatures are features for shaders with matrix units, chained.
type matrixFeatures struct {
	units vk.PhysicalDeviceCooperativeMatrixFeaturesKHR
	more  vk.PhysicalDeviceVulkan12Features
	all   vk.PhysicalDeviceFeatures2
}

// matricesOf returns an adapter's matrix units, or nil.
func matricesOf(a hal.Adapter, invocations, workgroupBytes uint32) *Matrices {
	d, ok := driverOf(a)
	const ask = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
	if !ok || d.command("createDevice") == nil || !d.hasExtensions(unitsExtension, sizesExtension) {
		return nil
	}
	at := d.command("g" + ask[3:])
	if at == nil {
		return nil
	}
	if *at = vk.GetInstanceProcAddr(d.instance, ask); *at == nil {
		return nil
	}
	f := &matrixFeatures{}
	f.units.SType = vk.StructureTypePhysicalDeviceCooperativeMatrixFeaturesKhr
	f.more.SType, f.more.PNext = vk.StructureTypePhysicalDeviceVulkan12Features, next(&f.units)
	f.all.SType, f.all.PNext = vk.StructureTypePhysicalDeviceFeatures2, next(&f.more)
	d.commands.GetPhysicalDeviceFeatures2(d.device, &f.all)
	if f.units.CooperativeMatrix == 0 || f.more.ShaderFloat16 == 0 || f.more.VulkanMemoryModel == 0 {
		return nil
	}
	p := &struct {
		sizes vk.PhysicalDeviceSubgroupSizeControlProperties
		all   vk.PhysicalDeviceProperties2
	}{}
	p.sizes.SType = 1000225000 // VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES
	p.all.SType, p.all.PNext = vk.StructureTypePhysicalDeviceProperties2, next(&p.sizes)
	d.commands.GetPhysicalDeviceProperties2(d.device, &p.all)
	m := &Matrices{Subgroup: [2]int{int(p.sizes.MinSubgroupSize), int(p.sizes.MaxSubgroupSize)},
		Invocations: int(invocations), WorkgroupBytes: int(workgroupBytes)}
	list := make([]vk.CooperativeMatrixPropertiesKHR, 64)
	for i := range list {
		list[i].SType = vk.StructureTypeCooperativeMatrixPropertiesKhr
	}
	n := uint32(len(list))
	if d.commands.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(d.device, &n, &list[0]) < 0 {
		return nil
	}
	for _, c := range list[:n] {
		if c.AType == vk.ComponentTypeFloat16Khr && c.BType == c.AType && c.CType == vk.ComponentTypeFloat32Khr &&
			c.ResultType == c.CType && c.Scope == vk.ScopeSubgroupKhr {
			m.Shapes = append(m.Shapes, Shape{int(c.MSize), int(c.NSize), int(c.KSize)})
		}
	}
	if len(m.Shapes) == 0 {
		return nil
	}
	return m
}

// next returns the address of a struct as a member of Vulkan's chains.
func next[T any](of *T) *uintptr { return (*uintptr)(unsafe.Pointer(of)) }

// hasExtensions reports whether a device lists all names.
func (d driver) hasExtensions(names ...string) bool {
	var n uint32
	d.commands.EnumerateDeviceExtensionProperties(d.device, 0, &n, nil)
	if n == 0 {
		return false
	}
	list := make([]vk.ExtensionProperties, n)
	if d.commands.EnumerateDeviceExtensionProperties(d.device, 0, &n, &list[0]) < 0 {
		return false
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(list[:n], func(e vk.ExtensionProperties) bool {
			has, _, _ := strings.Cut(string(e.ExtensionName[:]), "\x00")
			return has == name
		})
	})
}

// making is the device being made, with matrix units: the library asks for fixed features, so Vulkan's command to
// make a device is replaced meanwhile.
var making struct {
	sync.Mutex
	driver
	create unsafe.Pointer // the command
}

// openUnits opens an adapter, with its matrix units.
func openUnits(e hal.ExposedAdapter) (hal.OpenDevice, error) {
	making.Lock()
	defer making.Unlock()
	d, _ := driverOf(e.Adapter)
	at, by := d.command("createDevice"), createUnits()
	making.driver, making.create = d, *at
	*at = *(*unsafe.Pointer)(unsafe.Pointer(&by))
	defer func() { *at = making.create }()
	return e.Adapter.Open(e.Features, e.Capabilities.Limits)
}

// createUnits returns a command that adds to what the library asks of a device, as C's.
var createUnits = sync.OnceValue(func() uintptr {
	return ffi.NewCallback(func(_ uintptr, info, _, device unsafe.Pointer) uintptr {
		*making.command("createDevice") = making.create
		to := *(*vk.DeviceCreateInfo)(info)
		name := append([]byte(unitsExtension), 0)
		names := unsafe.Slice((**byte)(pointerTo(to.PpEnabledExtensionNames)), to.EnabledExtensionCount)
		names = append(slices.Clone(names), &name[0])
		to.PpEnabledExtensionNames, to.EnabledExtensionCount = uintptr(unsafe.Pointer(&names[0])), uint32(len(names))
		f := &matrixFeatures{}
		f.units.SType, f.units.CooperativeMatrix = vk.StructureTypePhysicalDeviceCooperativeMatrixFeaturesKhr, 1
		if more := (*vk.PhysicalDeviceVulkan12Features)(unsafe.Pointer(to.PNext)); more != nil &&
			more.SType == vk.StructureTypePhysicalDeviceVulkan12Features {
			f.more = *more
		}
		f.units.PNext = f.more.PNext
		f.more.SType, f.more.PNext = vk.StructureTypePhysicalDeviceVulkan12Features, next(&f.units)
		f.more.ShaderFloat16, f.more.VulkanMemoryModel = 1, 1
		to.PNext = next(&f.more)
		defer runtime.KeepAlive(names)
		return uintptr(making.commands.CreateDevice(making.device, &to, nil, (*vk.Device)(device)))
	})
})

// pointerTo returns an address that Vulkan has as a number.
func pointerTo(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }
