//! What the page shows of an application's inside: its processes, and the regions of one, as JSON. Asked for
//! only while somebody looks at it.

use farmem_client::{ProcessReport, RegionReport, RegionsReport, processes, regions};
use serde::Serialize;

/// The regions of a process, those with most pages first.
#[derive(Debug, Serialize)]
pub(crate) struct Regions {
    process: u32,
    /// How many there are in all.
    count: u64,
    regions: Vec<Region>,
    /// Those that are not among `regions`, together; `None` where all are.
    rest: Option<Region>,
}

#[derive(Debug, Serialize)]
struct Region {
    /// Where it begins, in hexadecimal: not every browser's numbers are as large. `None` for a visitor who
    /// may not know.
    address: Option<String>,
    size_bytes: u64,
    resident_bytes: u64,
    far_bytes: u64,
    /// Of its local pages, those that came back soon.
    heat: Option<f64>,
    /// What its far pages take, of their size.
    packed: Option<f64>,
    /// Of its far pages, those that nobody seems to need.
    idle: Option<f64>,
}

/// The processes of the application with this program, those with most memory first.
///
/// # Errors
/// A sentence: there is no such application, or it is somebody else's.
pub(crate) fn processes_of(application: u32) -> Result<Vec<ProcessReport>, String> {
    processes(&application.to_string()).map_err(|error| error.to_string())
}

/// The regions of one of its processes. Addresses help an attacker of the program: they are told only
/// `with_addresses`.
///
/// # Errors
/// A sentence: as before, or the process doesn't answer.
pub(crate) fn regions_of(application: u32, process: u32, with_addresses: bool) -> Result<Regions, String> {
    let found = regions(&application.to_string(), process).map_err(|error| error.to_string())?;
    Ok(Regions::new(found, with_addresses))
}

impl Regions {
    fn new(mut found: RegionsReport, with_addresses: bool) -> Self {
        let held = |region: &RegionReport| region.resident_bytes.saturating_add(region.far_bytes);
        found.regions.sort_by_key(|region| (std::cmp::Reverse(held(region)), region.start));
        Self {
            process: found.process,
            count: found.count,
            rest: (found.count > found.regions.len() as u64).then(|| Region::new(&found.rest, false)),
            regions: found.regions.iter().map(|region| Region::new(region, with_addresses)).collect(),
        }
    }
}

impl Region {
    fn new(region: &RegionReport, with_address: bool) -> Self {
        Self {
            address: with_address.then(|| format!("{:#x}", region.start)),
            size_bytes: region.end.saturating_sub(region.start),
            resident_bytes: region.resident_bytes,
            far_bytes: region.far_bytes,
            heat: (region.resident_bytes > 0).then(|| region.heat()),
            packed: region.packed_share(),
            idle: region.idle(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> RegionsReport {
        let region = |start: u64, resident: u64, far: u64| RegionReport {
            start,
            end: start + (1 << 20),
            resident_bytes: resident,
            hot_bytes: resident / 2,
            far_bytes: far,
            packed_bytes: far / 4,
            ..RegionReport::default()
        };
        let regions = vec![region(0x5555_0000_0000, 4096, 0), region(0x7fff_0000_0000, 8192, 4096)];
        RegionsReport { process: 7, regions, count: 5, rest: region(0, 4096, 0) }
    }

    #[test]
    fn the_largest_region_is_first_and_the_small_ones_are_together() {
        let shown = Regions::new(report(), true);
        let addresses: Vec<_> = shown.regions.iter().map(|region| region.address.as_deref()).collect();
        assert_eq!(addresses, [Some("0x7fff00000000"), Some("0x555500000000")]);
        assert_eq!((shown.regions[0].heat, shown.regions[0].packed), (Some(0.5), Some(0.25)));
        assert_eq!((shown.count, shown.rest.map(|rest| rest.resident_bytes)), (5, Some(4096)));
        assert_eq!(shown.regions[1].packed, None, "nothing of it is far");
    }

    #[test]
    fn without_the_right_to_addresses_there_is_none() {
        let text = serde_json::to_string(&Regions::new(report(), false)).unwrap();
        assert!(!text.contains("0x") && !text.contains(&0x7fff_0000_0000_u64.to_string()), "{text}");
    }
}
