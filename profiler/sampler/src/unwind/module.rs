//! Unwind sections of a module's file.
//!
//! Does not contain unwinding.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ReadCache, ReadRef};

use crate::record::Mapping;

/// Longest section that is read.
const MAX_SECTION: u64 = 64 << 20;

/// Longest `.debug_frame`, which has no index: the unwinder makes one.
const MAX_DEBUG_FRAME: u64 = 16 << 20;

/// Longest code that is searched for the return from a signal handler.
const MAX_SEARCHED: u64 = 32 << 20;

/// Code to which a signal handler returns: `mov $15,%rax; syscall` (`rt_sigreturn`).
#[cfg(target_arch = "x86_64")]
const SIGNAL_RETURN: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `mov x8, #139; svc #0`.
#[cfg(target_arch = "aarch64")]
const SIGNAL_RETURN: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

/// A section with its address in the file.
#[derive(Clone, Debug)]
struct Section {
    address: u64,
    bytes: Arc<[u8]>,
}

/// What unwinding needs of a module's file.
#[derive(Debug, Default)]
pub(crate) struct ModuleSections {
    eh_frame: Option<Section>,
    eh_frame_header: Option<Section>,
    debug_frame: Option<Section>,
    text: Option<std::ops::Range<u64>>,
    got: Option<std::ops::Range<u64>>,
    /// File offset, size in the file and address of executable segments.
    segments: Vec<(u64, u64, u64)>,
    /// Addresses to which signal handlers return.
    signal_returns: Vec<u64>,
    /// Compiled by Go, which keeps frame pointers and writes no unwind sections.
    pub(crate) is_go: bool,
}

impl ModuleSections {
    /// Reads a file; `None` if it is no program or library of this machine.
    pub(crate) fn read(file: File) -> Option<ModuleSections> {
        let cache = ReadCache::new(file);
        let elf = ElfFile64::<LittleEndian, _>::parse(&cache).ok()?;
        let section = |name: &str, limit: u64| {
            let section = elf.section_by_name(name)?;
            // A damaged file may state any size.
            let data = (section.size() <= limit).then(|| section.compressed_data().ok()).flatten()?;
            let data = (data.uncompressed_size <= limit as usize as u64).then(|| data.decompress().ok()).flatten()?;
            Some(Section { address: section.address(), bytes: Arc::from(&*data) })
        };
        let range = |name: &str| {
            let section = elf.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let endian = LittleEndian;
        let headers = elf.elf_header().program_headers(endian, &cache).ok()?;
        let segments: Vec<(u64, u64, u64)> = headers
            .iter()
            .filter(|header| header.p_type(endian) == object::elf::PT_LOAD)
            .filter(|header| header.p_flags(endian).contains(object::elf::PF_X))
            .map(|header| (header.p_offset(endian), header.p_filesz(endian), header.p_vaddr(endian)))
            .collect();
        let eh_frame = section(".eh_frame", MAX_SECTION);
        let is_go = elf.section_by_name(".gopclntab").is_some() || elf.section_by_name(".go.buildinfo").is_some();
        let debug_frame = if eh_frame.is_none() && !is_go { section(".debug_frame", MAX_DEBUG_FRAME) } else { None };
        let signal_returns = elf.section_by_name(".text").filter(|text| text.size() <= MAX_SEARCHED && !is_go);
        let signal_returns = signal_returns.and_then(|text| {
            let (offset, size) = text.file_range()?;
            let found = find(cache.read_bytes_at(offset, size).ok()?, SIGNAL_RETURN);
            Some(found.map(|at| text.address().wrapping_add(at as u64)).collect())
        });
        Some(ModuleSections {
            eh_frame_header: eh_frame.as_ref().and_then(|_| section(".eh_frame_hdr", MAX_SECTION)),
            eh_frame,
            debug_frame,
            text: range(".text"),
            got: range(".got"),
            segments,
            signal_returns: signal_returns.unwrap_or_default(),
            is_go,
        })
    }

    /// Bytes that are kept.
    pub(crate) fn size(&self) -> usize {
        let sections = [&self.eh_frame, &self.eh_frame_header, &self.debug_frame];
        sections.into_iter().flatten().map(|section| section.bytes.len()).sum()
    }

    /// Address in the file that a mapping begins with.
    fn first_address(&self, mapping: &Mapping) -> Option<u64> {
        let page = rustix::param::page_size() as u64;
        let holds = |(offset, size, _): &&(u64, u64, u64)| {
            let first = offset / page * page;
            mapping.offset >= first && mapping.offset < offset.saturating_add((*size).max(1))
        };
        let (offset, _, address) = self.segments.iter().find(holds)?;
        Some(address.wrapping_sub(*offset).wrapping_add(mapping.offset))
    }

    /// The module at its place in memory; `None` if the file has no such segment, or nothing for
    /// the unwinder.
    pub(crate) fn place(&self, mapping: &Mapping) -> Option<Module<Arc<[u8]>>> {
        if self.eh_frame.is_none() && self.debug_frame.is_none() {
            return None;
        }
        let end = mapping.start.checked_add(mapping.length)?;
        let base_svma = self.first_address(mapping)?;
        // The unwinder adds offsets to it.
        base_svma.checked_add(mapping.length)?;
        let bytes = |section: &Option<Section>| section.as_ref().map(|section| section.bytes.clone());
        let range = |section: &Option<Section>| {
            let section = section.as_ref()?;
            Some(section.address..section.address.checked_add(section.bytes.len() as u64)?)
        };
        let info = ExplicitModuleSectionInfo {
            base_svma,
            text_svma: self.text.clone(),
            got_svma: self.got.clone(),
            eh_frame_svma: range(&self.eh_frame),
            eh_frame: bytes(&self.eh_frame),
            eh_frame_hdr_svma: range(&self.eh_frame_header),
            eh_frame_hdr: bytes(&self.eh_frame_header),
            debug_frame: bytes(&self.debug_frame),
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Module::new(String::new(), mapping.start..end, mapping.start, info))
    }

    /// Addresses in memory to which signal handlers return.
    pub(crate) fn signal_returns(&self, mapping: &Mapping) -> Vec<u64> {
        let Some(first) = self.first_address(mapping) else { return Vec::new() };
        let places = self.signal_returns.iter().filter_map(|address| address.checked_sub(first));
        places.filter(|offset| *offset < mapping.length).map(|offset| mapping.start.wrapping_add(offset)).collect()
    }
}

/// Module of this machine's vDSO, which all programs share: read from the recorder's own memory.
pub(crate) fn read_vdso() -> Option<ModuleSections> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok().filter(|size| *size <= 1 << 20)?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    // The reader of sections wants a file.
    let image = rustix::fs::memfd_create("vdso", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let mut image = File::from(image);
    image.write_all(&bytes).ok()?;
    ModuleSections::read(image)
}

fn find<'a>(text: &'a [u8], code: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = code.first().copied();
    text.windows(code.len())
        .enumerate()
        .filter(move |(_, window)| window.first().copied() == first && *window == code)
        .map(|(at, _)| at)
        .take(16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Files of any content are refused or read, and nothing panics.
        #[test]
        fn arbitrary_files_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000), flips in prop::collection::vec((0usize..4096, any::<u8>()), 0..20)) {
            let mut image = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut image, &bytes).unwrap();
            let _ = ModuleSections::read(image);
            // A real file with a few wrong bytes in its headers.
            let mut own = std::fs::read("/proc/self/exe").unwrap();
            own.truncate(1 << 16);
            for (at, byte) in flips {
                own[at] = byte;
            }
            let mut image = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut image, &own).unwrap();
            let _ = ModuleSections::read(image);
        }
    }

    #[test]
    fn the_vdso_has_unwind_sections() {
        let vdso = read_vdso().unwrap();
        assert!(vdso.eh_frame.is_some());
    }

    #[test]
    fn the_return_from_handlers_is_in_the_c_library() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("libc.so")).unwrap();
        let path = &line[line.find('/').unwrap()..];
        let library = ModuleSections::read(File::open(path).unwrap()).unwrap();
        assert!(!library.signal_returns.is_empty());
        assert!(library.size() > 0);
    }
}
