//! Following references, on a machine that pages: pages leave first in, first out, and what is stored is what
//! the program has.

use std::collections::{HashMap, HashSet, VecDeque};

use farmem_page::{PAGE_BYTES, PageBytes, PageIndex, VirtAddr};
use farmem_policy::references::{Allotment, Compression, Follower, MOST_PAGES};
use proptest::prelude::*;

const BASE: u64 = 0x7f00_0000_0000;
const PAGES: u64 = 4096;
const BUDGET: usize = 1024;
/// From one fault to the next, and what a look at one takes, and each page that a walk fetches.
const FAULT_NS: u64 = 35_000;
const LOOK_NS: u64 = 12_000;
const FETCH_NS: u64 = 6_000;
/// Objects of 64 bytes: a reference, another one, a value.
const OBJECT_BYTES: u64 = 64;
const OBJECTS: u64 = PAGES * PAGE_BYTES as u64 / OBJECT_BYTES;
const VALUE_AT: u64 = 16;

struct Machine {
    memory: HashMap<PageIndex, Box<PageBytes>>,
    resident: HashSet<PageIndex>,
    order: VecDeque<PageIndex>,
    /// Came ahead, and not touched since.
    ahead: HashSet<PageIndex>,
    /// Touches after which a page comes that was asked for ahead, as one of a node does.
    answers_after: u64,
    touches: u64,
    /// Pages on their way, and when they come.
    flying: HashMap<PageIndex, u64>,
    /// Pages that the program has come to before they had.
    late: u64,
    follower: Follower,
    /// The time for looks, where it is limited.
    allotment: Option<Allotment>,
    now_ns: u64,
    /// What looks and walks have taken.
    spent_ns: u64,
    faults: u64,
    fetched: u64,
    used: u64,
    said_used: u64,
    said_unused: u64,
}

impl Machine {
    fn new() -> Self {
        let pages = (0..PAGES).map(|page| VirtAddr::new(BASE + page * PAGE_BYTES as u64).page());
        Self {
            memory: pages.map(|page| (page, Box::new([0; PAGE_BYTES]))).collect(),
            resident: HashSet::new(),
            order: VecDeque::new(),
            ahead: HashSet::new(),
            answers_after: 0,
            touches: 0,
            flying: HashMap::new(),
            late: 0,
            follower: Follower::new(Box::leak(Box::new([[0; PAGE_BYTES]; _]))),
            allotment: None,
            now_ns: 0,
            spent_ns: 0,
            faults: 0,
            fetched: 0,
            used: 0,
            said_used: 0,
            said_unused: 0,
        }
    }

    fn write(&mut self, address: u64, value: u64) {
        let page = self.memory.get_mut(&VirtAddr::new(address).page()).expect("an address of the machine");
        let at = address as usize % PAGE_BYTES;
        page[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    fn read(&mut self, address: u64) -> u64 {
        self.touch(address);
        let at = address as usize % PAGE_BYTES;
        let page = &self.memory[&VirtAddr::new(address).page()];
        u64::from_ne_bytes(page[at..at + 8].try_into().expect("eight bytes"))
    }

    /// A reference of four bytes, as [`compression`] says.
    fn write_compressed(&mut self, address: u64, to: u64) {
        let page = self.memory.get_mut(&VirtAddr::new(address).page()).expect("an address of the machine");
        let at = address as usize % PAGE_BYTES;
        let reference =
            u32::try_from((to - compression().base()) >> compression().shift()).expect("it is near");
        page[at..at + 4].copy_from_slice(&reference.to_ne_bytes());
    }

    fn bring(&mut self, page: PageIndex) {
        self.resident.insert(page);
        self.order.push_back(page);
        if self.resident.len() > BUDGET {
            let gone = self.order.pop_front().expect("a resident page");
            self.resident.remove(&gone);
            self.ahead.remove(&gone);
        }
    }

    fn touch(&mut self, address: u64) {
        let address = VirtAddr::new(address);
        let page = address.page();
        self.touches += 1;
        self.land();
        self.used += u64::from(self.ahead.remove(&page));
        if self.resident.contains(&page) {
            return;
        }
        if self.flying.remove(&page).is_some() {
            self.late += 1;
        } else {
            self.faults += 1;
        }
        self.now_ns += FAULT_NS;
        let now_ns = self.now_ns;
        let allotment = &mut self.allotment;
        let looks = self
            .follower
            .looks_at(address, || allotment.as_mut().is_none_or(|allotment| allotment.is_any_left(now_ns)));
        if let Some(settled) = self.follower.on_fault(address) {
            if let Some(allotment) = self.allotment.as_mut().filter(|_| settled.is_worthwhile) {
                allotment.earn(settled.took_ns);
            }
            let count = settled.pages().len() as u64;
            match settled.is_used {
                Some(true) => self.said_used += count,
                Some(false) => self.said_unused += count,
                None => {}
            }
        }
        let Some(most) = self.follower.reach() else {
            if looks {
                self.spend(LOOK_NS);
            }
            return self.bring(page);
        };
        let mut fetched = vec![page];
        let mut walk = self.follower.walk(address, &self.memory[&page], most);
        while let Some(next) = walk.step() {
            let page = next.page();
            let Some(content) = self.memory.get(&page) else {
                walk.miss();
                continue;
            };
            if self.flying.contains_key(&page) {
                // Its content isn't known yet.
                continue;
            }
            if !self.resident.contains(&page) && !fetched.contains(&page) {
                if !walk.fetch(page) {
                    break;
                }
                fetched.push(page);
                if self.answers_after > 0 {
                    walk.await_content();
                    continue;
                }
            }
            walk.arrive(content);
        }
        let walked = walk.end();
        self.follower.walked(address, &self.memory[&page], walked);
        if let Some(page) = self.follower.wanted()
            && let Some(content) = self.memory.get(&page)
        {
            self.follower.show(page, content);
        }
        assert!(fetched.len() <= 1 + most as usize);
        let took_ns = LOOK_NS + (fetched.len() as u64 - 1) * FETCH_NS;
        self.spend(took_ns);
        self.follower.took(took_ns);
        self.fetched += fetched.len() as u64 - 1;
        self.ahead.extend(&fetched[1..]);
        if self.answers_after > 0 {
            let comes_at = self.touches + self.answers_after;
            self.flying.extend(fetched.drain(1..).map(|page| (page, comes_at)));
        }
        fetched.into_iter().for_each(|page| self.bring(page));
    }

    fn spend(&mut self, took_ns: u64) {
        self.now_ns += took_ns;
        if let Some(allotment) = &mut self.allotment {
            self.spent_ns += allotment.spend(took_ns);
        }
    }

    /// Takes in what has come.
    fn land(&mut self) {
        let mut come: Vec<_> = self.flying.iter().filter(|(_, at)| **at <= self.touches).collect();
        come.sort();
        let come: Vec<_> = come.into_iter().map(|(&page, _)| page).collect();
        for page in come {
            self.flying.remove(&page);
            self.bring(page);
        }
    }

    fn contribution(&self) -> f64 {
        self.used as f64 / (self.used + self.faults) as f64
    }

    fn useless(&self) -> u64 {
        self.fetched - self.used
    }
}

/// A number below `count`, a power of two, for each other one below it, with no order to be seen.
fn scattered(number: u64, count: u64) -> u64 {
    (0..3).fold(number, |number, _| {
        let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count;
        number ^ number >> (count.ilog2() / 2)
    })
}

/// Where object `number` lies.
fn object(number: u64) -> u64 {
    BASE + scattered(number % OBJECTS, OBJECTS) * OBJECT_BYTES
}

fn list() -> Machine {
    let mut machine = Machine::new();
    for number in 0..OBJECTS {
        machine.write(object(number), object((number + 1) % OBJECTS));
    }
    machine
}

fn tree() -> Machine {
    let mut machine = Machine::new();
    for node in 1..OBJECTS / 2 {
        machine.write(object(node), object(2 * node));
        machine.write(object(node) + 8, object(2 * node + 1));
    }
    machine
}

/// As a Java VM has it whose heap isn't among the lowest addresses.
fn compression() -> Compression {
    Compression::new(BASE - (16 << 20), 3).expect("a shift of three")
}

/// A list whose references are at an odd multiple of four bytes.
fn compressed_list() -> Machine {
    let mut machine = Machine::new();
    for number in 0..OBJECTS {
        machine.write_compressed(object(number) + 12, object((number + 1) % OBJECTS));
    }
    machine
}

/// Visits objects of [`compressed_list`].
fn visit_compressed(machine: &mut Machine) {
    for number in 0..20_000 {
        machine.touch(object(number) + 8);
        machine.touch(object(number) + 12);
    }
}

#[test]
fn a_list_of_compressed_references_comes_ahead_once_it_is_known_how_they_are_written() {
    let mut machine = compressed_list();
    visit_compressed(&mut machine);
    assert_eq!(machine.fetched, 0);

    let mut machine = compressed_list();
    machine.follower.understand(Some(compression()));
    visit_compressed(&mut machine);
    assert!(machine.contribution() > 0.9, "{} of {}", machine.used, machine.faults);
    assert!(machine.useless() <= 2 * MOST_PAGES as u64, "{} useless", machine.useless());
}

/// Faults that nothing explains have used up what was saved, and the list begins.
#[test]
fn a_list_is_followed_by_whoever_has_time_only_now_and_then() {
    let mut machine = list();
    machine.allotment = Some(Allotment::new());
    let mut state = 5;
    for _ in 0..20_000 {
        machine.touch(BASE + random(&mut state) % (PAGES * PAGE_BYTES as u64));
    }
    assert!(machine.spent_ns < machine.now_ns / 100, "{} of {}", machine.spent_ns, machine.now_ns);
    (machine.used, machine.faults) = (0, 0);
    let mut at = object(0);
    for _ in 0..20_000 {
        machine.read(at + VALUE_AT);
        at = machine.read(at);
    }
    assert!(machine.contribution() > 0.8, "{} of {}", machine.used, machine.faults);
}

#[test]
fn whole_references_are_followed_where_there_are_compressed_ones_too() {
    let mut machine = list();
    machine.follower.understand(Some(compression()));
    let mut at = object(0);
    for _ in 0..20_000 {
        machine.read(at + VALUE_AT);
        at = machine.read(at);
    }
    assert!(machine.contribution() > 0.9, "{} of {}", machine.used, machine.faults);
}

#[test]
fn a_shift_that_four_bytes_cant_need_is_refused() {
    assert!(Compression::new(0, 9).is_none());
    assert_eq!(Compression::new(u64::MAX, 8).map(Compression::end), Some(u64::MAX));
}

/// Vertices of 512 bytes, as a Java VM makes them: an object, behind it an array of references to others,
/// then bytes.
const VERTEX_BYTES: u64 = 512;
const VERTICES: u64 = PAGES * PAGE_BYTES as u64 / VERTEX_BYTES;
const EDGES: u64 = 8;
const ARRAY_AT: u64 = 32;
const ELEMENTS_AT: u64 = ARRAY_AT + 16;
const VISIT_AT: u64 = 12;

fn vertex(number: u64) -> u64 {
    BASE + number * VERTEX_BYTES
}

#[test]
fn what_arrays_of_references_lead_to_comes_ahead() {
    let mut machine = Machine::new();
    machine.follower.understand(Some(compression()));
    let mut state = 1;
    let mut edges = vec![];
    for number in 0..VERTICES {
        machine.write(vertex(number), 1);
        machine.write(vertex(number) + ARRAY_AT, 1);
        machine.write(vertex(number) + ARRAY_AT + 8, EDGES << 32 | 0x0012_3456);
        for edge in 0..EDGES {
            let far = random(&mut state) % VERTICES;
            let near = (number + VERTICES + far % 128 - 64) % VERTICES;
            let to = if edge % 2 == 0 { near } else { far };
            edges.push(to);
            machine.write_compressed(vertex(number) + ELEMENTS_AT + 4 * edge, vertex(to));
        }
        machine.write(vertex(number) + ELEMENTS_AT + 4 * EDGES, 1);
        for at in (ELEMENTS_AT + 4 * EDGES + 16..VERTEX_BYTES).step_by(8) {
            let value = random(&mut state) << 33 | random(&mut state);
            machine.write(vertex(number) + at, value);
        }
    }
    let mut waiting = VecDeque::from([7]);
    let mut seen = HashSet::from([7]);
    while let Some(number) = waiting.pop_front() {
        machine.touch(vertex(number) + VISIT_AT + 4);
        machine.touch(vertex(number) + ELEMENTS_AT - 4);
        for edge in 0..EDGES {
            let to = edges[(number * EDGES + edge) as usize];
            machine.touch(vertex(number) + ELEMENTS_AT + 4 * edge);
            machine.touch(vertex(to) + VISIT_AT);
            if seen.insert(to) {
                waiting.push_back(to);
            }
        }
    }
    assert!(machine.contribution() > 0.45, "{} of {}", machine.used, machine.faults);
    assert!(machine.useless() * 10 < machine.fetched * 2, "{} of {}", machine.useless(), machine.fetched);
}

/// A visit in breadth of a graph as a Java VM has it: a queue of references, and in each vertex an array of
/// eight; half of them lead nearby. Vertices are taken from the queue by one of their fields, and looked at
/// from elsewhere by another.
#[test]
fn a_queue_of_objects_and_the_arrays_in_them_are_followed_in_turn() {
    const VERTEX_BYTES: u64 = 600;
    const EDGES: u64 = 8;
    const DEPTH_AT: u64 = 16;
    const VISIT_AT: u64 = 12;
    const ARRAY_AT: u64 = 32 + 16;
    let mut machine = Machine::new();
    machine.follower.understand(Some(compression()));
    let queue = BASE;
    let vertices = (PAGES - 64) * PAGE_BYTES as u64 / VERTEX_BYTES;
    let vertex = |number: u64| BASE + 64 * PAGE_BYTES as u64 + number * VERTEX_BYTES;
    let mut state = 3;
    let mut edges = Vec::new();
    for number in 0..vertices {
        for edge in 0..EDGES {
            let near = (number + vertices + random(&mut state) % 128 - 64) % vertices;
            let to = if edge % 2 == 0 { near } else { random(&mut state) % vertices };
            machine.write_compressed(vertex(number) + ARRAY_AT + 4 * edge, vertex(to));
            edges.push(to);
        }
    }
    let (mut waiting, mut last) = (VecDeque::from([(0, queue)]), queue);
    let mut seen = vec![false; vertices as usize];
    seen[0] = true;
    machine.write_compressed(queue, vertex(0));
    while let Some((number, place)) = waiting.pop_front() {
        machine.touch(place);
        machine.touch(vertex(number) + DEPTH_AT);
        for edge in 0..EDGES {
            machine.touch(vertex(number) + ARRAY_AT + 4 * edge);
            let to = edges[(number * EDGES + edge) as usize];
            machine.touch(vertex(to) + VISIT_AT);
            if !std::mem::replace(&mut seen[to as usize], true) {
                last += 4;
                machine.write_compressed(last, vertex(to));
                machine.touch(last);
                waiting.push_back((to, last));
            }
        }
    }
    assert!(machine.contribution() > 0.45, "{}", machine.contribution());
    assert!(machine.used * 10 > machine.fetched * 9, "{} of {}", machine.used, machine.fetched);
}

/// References to half of the objects, in no order; the array takes pages beyond the objects.
fn large_array() -> Machine {
    let mut machine = Machine::new();
    for number in 0..OBJECTS / 2 {
        machine.write(element(number), BASE + scattered(number, OBJECTS / 2) * OBJECT_BYTES);
    }
    machine
}

/// Where element `number` of the large array lies.
fn element(number: u64) -> u64 {
    BASE + PAGES / 2 * PAGE_BYTES as u64 + number * 8
}

fn visit_large_array(machine: &mut Machine) {
    for number in 0..40_000 {
        let at = machine.read(element(number));
        machine.read(at + VALUE_AT);
    }
}

#[test]
fn what_a_large_array_of_references_leads_to_comes_ahead() {
    let mut machine = large_array();
    visit_large_array(&mut machine);
    assert!(machine.contribution() > 0.85, "{} of {}", machine.used, machine.faults);
    assert!(machine.useless() * 20 < machine.fetched, "{} of {}", machine.useless(), machine.fetched);
}

#[test]
fn what_a_large_array_leads_to_is_asked_of_nodes_ahead() {
    // The program reads some elements of the array, or fewer than one, while a page is on its way.
    for answers_after in [1, 4, 40] {
        let mut machine = large_array();
        machine.answers_after = answers_after;
        visit_large_array(&mut machine);
        assert!(machine.contribution() > 0.85, "{answers_after}: {} of {}", machine.used, machine.faults);
        assert!(machine.useless() * 20 < machine.fetched, "{answers_after}: {}", machine.useless());
        assert!(answers_after < 40 || machine.late > 0, "{answers_after}: none was late");
    }
}

#[test]
fn the_next_object_of_a_list_is_asked_of_nodes_ahead() {
    for answers_after in [1, 8] {
        let mut machine = list();
        machine.answers_after = answers_after;
        let mut at = object(0);
        for _ in 0..20_000 {
            machine.read(at + VALUE_AT);
            at = machine.read(at);
        }
        assert!(machine.contribution() > 0.4, "{answers_after}: {} of {}", machine.used, machine.faults);
        assert!(machine.useless() * 20 < machine.fetched, "{answers_after}: {}", machine.useless());
    }
}

#[test]
fn a_list_comes_ahead() {
    let mut machine = list();
    let mut at = object(0);
    for _ in 0..20_000 {
        machine.read(at + VALUE_AT);
        at = machine.read(at);
    }
    assert!(machine.contribution() > 0.9, "{} of {}", machine.used, machine.faults);
    assert!(machine.useless() <= 2 * MOST_PAGES as u64, "{} useless", machine.useless());
    assert!(machine.said_used <= machine.used, "{} said, {} used", machine.said_used, machine.used);
    assert!(machine.said_used * 10 > machine.used * 9, "{} said, {} used", machine.said_used, machine.used);
}

#[test]
fn a_tree_that_is_visited_in_depth_comes_ahead() {
    let mut machine = tree();
    let mut path = vec![object(1)];
    while let Some(at) = path.pop() {
        machine.read(at + VALUE_AT);
        let (left, right) = (machine.read(at), machine.read(at + 8));
        path.extend([right, left].into_iter().filter(|&child| child != 0));
    }
    assert!(machine.contribution() > 0.7, "{} of {}", machine.used, machine.faults);
    assert!(machine.useless() * 5 < machine.fetched, "{} of {}", machine.useless(), machine.fetched);
}

/// A generator of numbers, good enough to choose by.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

#[test]
fn chains_of_a_hash_table_come_with_their_heads() {
    let mut machine = Machine::new();
    let buckets = OBJECTS / 4;
    let bucket = |number: u64| BASE + number * 8;
    // The array takes the first pages; the chains, of two objects each, lie behind.
    let first = buckets * 8 / OBJECT_BYTES;
    let behind = |number: u64| BASE + (first + scattered(number, OBJECTS / 2)) * OBJECT_BYTES;
    for number in 0..buckets {
        machine.write(bucket(number), behind(2 * number));
        machine.write(behind(2 * number), behind(2 * number + 1));
        machine.write(behind(2 * number + 1), 0);
    }
    let mut state = 1;
    for _ in 0..20_000 {
        let mut at = machine.read(bucket(random(&mut state) % buckets));
        while at != 0 {
            machine.read(at + VALUE_AT);
            at = machine.read(at);
        }
    }
    // The heads are local most of the time: then the fault is at the first object, and only the second one
    // can come ahead.
    assert!(machine.contribution() > 0.25, "{} of {}", machine.used, machine.faults);
    assert!(machine.useless() * 4 < machine.fetched, "{} of {}", machine.useless(), machine.fetched);
}

#[test]
fn random_reads_of_objects_that_refer_to_each_other_bring_nothing() {
    let mut machine = list();
    let mut state = 1;
    for _ in 0..20_000 {
        machine.read(object(random(&mut state) % OBJECTS));
    }
    assert_eq!(machine.fetched, 0);
}

#[test]
fn objects_that_reach_over_the_edge_of_a_page_come_ahead_all_the_same() {
    const BYTES: u64 = 528;
    const COUNT: u64 = 1 << 14;
    // Twice as many pages as are local.
    let object = |number: u64| BASE + scattered(number % COUNT, COUNT) * BYTES;
    let mut machine = Machine::new();
    for number in 0..COUNT {
        machine.write(object(number), object(number + 1));
    }
    for number in 0..COUNT {
        for word in 0..BYTES / 8 {
            machine.touch(object(number) + word * 8);
        }
    }
    assert!(machine.contribution() > 0.7, "{} of {}", machine.used, machine.faults);
    assert!(machine.useless() * 10 < machine.fetched, "{} of {}", machine.useless(), machine.fetched);
}

#[test]
fn a_list_that_begins_late_comes_ahead() {
    let mut machine = list();
    let mut state = 1;
    for _ in 0..10_000 {
        machine.read(object(random(&mut state)));
    }
    assert_eq!(machine.fetched, 0);
    let (mut at, faults) = (object(0), machine.faults);
    for _ in 0..20_000 {
        at = machine.read(at);
    }
    assert!(machine.used > 5 * (machine.faults - faults), "{} of {}", machine.used, machine.faults - faults);
}

#[test]
fn references_that_no_longer_lead_where_the_program_goes_are_given_up_soon() {
    let mut machine = list();
    let mut state = 1;
    let mut at = object(0);
    for _ in 0..2_000 {
        at = machine.read(at);
    }
    assert!(machine.fetched > 0);
    // From now on references lead anywhere but where the program goes.
    for number in 0..OBJECTS {
        machine.write(object(number), object(random(&mut state) % OBJECTS));
    }
    let (faults, fetched) = (machine.faults, machine.fetched);
    for number in 0..50_000 {
        machine.read(object(number));
    }
    let (faults, fetched) = (machine.faults - faults, machine.fetched - fetched);
    assert!(fetched <= 4 * MOST_PAGES as u64 + faults / 256, "{fetched} fetched in {faults} faults");
}

#[test]
fn no_pages_are_fetched_while_streams_know_what_comes() {
    let mut machine = list();
    let mut at = object(0);
    for _ in 0..5_000 {
        machine.follower.on_stream(VirtAddr::new(at).page());
        at = machine.read(at);
    }
    assert_eq!(machine.fetched, 0);
}

#[test]
fn another_thread_goes_on_with_what_is_known_but_is_not_judged_by_it() {
    let mut machine = list();
    let mut at = object(0);
    machine.follower.attend(1);
    for _ in 0..5_000 {
        at = machine.read(at);
    }
    let (fetched, said_unused) = (machine.fetched, machine.said_unused);
    machine.follower.attend(2);
    for _ in 0..50 {
        at = machine.read(at);
    }
    assert!(machine.fetched > fetched, "it need not learn the links again");
    assert_eq!(machine.said_unused, said_unused);
}

proptest! {
    /// Whatever words say, a walk ends, and takes no more pages than it may.
    #[test]
    fn a_walk_is_bounded(
        writes in prop::collection::vec((0..OBJECTS, 0..8_u64, any::<u64>(), any::<bool>()), 0..200),
        visits in prop::collection::vec((0..OBJECTS, 0..PAGE_BYTES as u64), 0..400),
    ) {
        let mut machine = list();
        for (number, word, value, refers) in writes {
            machine.write(object(number) + word * 8, if refers { object(value % OBJECTS) } else { value });
        }
        let mut at = object(0);
        for (step, (number, offset)) in visits.into_iter().enumerate() {
            // A part of the way along the list, so that there is something to follow.
            machine.touch(at);
            let next = machine.read(at);
            let is_known = machine.memory.contains_key(&VirtAddr::new(next).page()) && next.is_multiple_of(8);
            at = if step % 40 == 39 || !is_known { object(number) + offset / 8 * 8 % OBJECT_BYTES } else { next };
        }
        prop_assert!(machine.used <= machine.fetched);
        prop_assert!(machine.said_used + machine.said_unused <= machine.fetched);
    }
}
