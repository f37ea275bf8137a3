"""Petnames from the user's file of known peers, and node IDs as words.

A petname is the user's own name for a peer: its first name that isn't an address. It is displayed
next to a node ID, never in its place, and no decision depends on it. The successor of an ended ID
has the petname of that ID, unless it has one itself.

The words come from the PGP Word List: P. Juola and P. Zimmermann, "Whole-Word Phonetic Distances
and the PGPfone Alphabet", ICSLP 1996, in lower case. Bytes at even positions become words of two
syllables and bytes at odd positions words of three, so that omitted or repeated words are noticed.
"""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError, KeyStatementsError
from parley._node.trust.ended_ids import inheritances
from parley._node.trust.files import home_directory
from parley._node.trust.key_statements import read_table

# Neither at the end of an address nor in a command, because both can be copied.
_FULL: Final = r"(?<![\w#/@.])(?<!peers (?:accept|forget|refuse) )(?<!--as )[a-z2-7]{52}(?!\w)"
_SHORT: Final = r"(?<=\bpeer )[a-z2-7]{8}(?!\w)"  # as in logs
_SHORT_SIZE: Final = 8
_IDS: Final = re.compile(f"{_FULL}|{_SHORT}")
_MAX_FILE_SIZE: Final = 1_048_576  # the maximum that `node.trust.known_peers` writes


class Petnames:
    """The petnames in the current state of a file of known peers; empty if it is unreadable.

    `statements` is the file of key statements, which names the successors of known peers. `follow`
    is as for `KeyStatements`: otherwise only a successor that a person accepted has the petname of
    an ended ID.
    """

    def __init__(
        self, path: Path | None, statements: Path | None = None, *, follow: bool = True
    ) -> None:
        self._path = path
        self._statements = statements
        self._follow = follow
        self._states: tuple[object, object] = (None, None)
        self._names: dict[str, str] = {}

    @classmethod
    def of_home(cls, *, follow: bool = True) -> "Petnames":
        """Return the petnames of the default files of commands."""
        try:
            home = home_directory()
        except ConfigError:
            return cls(None)
        return cls(home / "known_peers", home / "key_statements", follow=follow)

    def of(self, node_id: object) -> str | None:
        """Return the petname of a node, given its ID or the first 8 characters of it if they are
        unambiguous.
        """
        self._look()
        return self._names.get(str(node_id))

    def beside(self, node_id: object) -> str:
        """Return the id, followed by its petname in brackets if it has one."""
        name = self.of(node_id)
        return str(node_id) if name is None else f"{node_id} ({name})"

    def beside_short(self, node_id: object) -> str:
        """Return the first 8 characters of the ID, followed by the petname in brackets if there is
        one.
        """
        name, short = self.of(node_id), str(node_id)[:_SHORT_SIZE]
        return short if name is None else f"{short} ({name})"

    def known_by(self, node_id: object) -> dict[str, str]:
        """Return the petname as a JSON field, if there is one."""
        name = self.of(node_id)
        return {} if name is None else {"petname": name}

    def in_text(self, text: str) -> str:
        """Add the petname after each node ID in a text; addresses and commands, which can be
        copied, stay unchanged.
        """
        return _IDS.sub(lambda found: self.beside(found.group()), text)

    def _look(self) -> None:
        """Reread the files if one of them has changed."""
        states = _state(self._path), _state(self._statements)
        if states != self._states:
            names = {} if self._path is None else _read(self._path)
            if names and self._statements is not None and states[1] is not None:
                _add_successors(names, self._statements, follow=self._follow)
            self._names, self._states = _with_short_ids(names), states


def _state(path: Path | None) -> object:
    """Return a value that identifies the state of a file, or None if there is none."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(path: Path) -> dict[str, str]:
    """Return the petname of each ID in the file, empty if it has none."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_SIZE).decode(errors="replace")
    except OSError:
        return {}
    names: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and not words[0].startswith("#"):
            called = [name for name in words[2].split(",") if "://" not in name and name != "-"]
            names[words[0]] = called[0] if called else ""
    return names


def _add_successors(names: dict[str, str], statements: Path, *, follow: bool) -> None:
    """Give the successors of ended IDs their petnames."""
    try:
        table = read_table(statements, follow=follow)
    except KeyStatementsError:
        return  # a node reports it
    for origin, successor in inheritances(table):
        name = names.get(str(origin))
        if name and not names.get(str(successor)):
            names[str(successor)] = name


def _with_short_ids(names: dict[str, str]) -> dict[str, str]:
    """Return the petnames by ID, and by its first characters if no other ID begins with them."""
    counts = Counter(node_id[:_SHORT_SIZE] for node_id in names)
    short = {
        node_id[:_SHORT_SIZE]: name
        for node_id, name in names.items()
        if counts[node_id[:_SHORT_SIZE]] == 1
    }
    return {node_id: name for node_id, name in {**short, **names}.items() if name}


_EVEN: Final = """
aardvark absurd accrue acme adrift adult afflict ahead aimless algol allow alone ammo
ancient apple artist assume athens atlas aztec baboon backfield backward banjo beaming
bedlamp beehive beeswax befriend belfast berserk billiard bison blackjack blockade blowtorch
bluebird bombast bookshelf brackish breadline breakup brickyard briefcase burbank button
buzzard cement chairlift chatter checkup chisel choking chopper christmas clamshell classic
classroom cleanup clockwork cobra commence concert cowbell crackdown cranky crowfoot crucial
crumpled crusade cubic dashboard deadbolt deckhand dogsled dragnet drainage dreadful drifter
dropper drumbeat drunken dupont dwelling eating edict egghead eightball endorse endow enlist
erase escape exceed eyeglass eyetooth facial fallout flagpole flatfoot flytrap fracture
framework freedom frighten gazelle geiger glitter glucose goggles goldfish gremlin guidance
hamlet highchair hockey indoors indulge inverse involve island jawbone keyboard kickoff kiwi
klaxon locale lockup merit minnow miser mohawk mural music necklace neptune newborn
nightbird oakland obtuse offload optic orca payday peachy pheasant physique playhouse pluto
preclude prefer preshrunk printer prowler pupil puppy python quadrant quiver quota ragtime
ratchet rebirth reform regain reindeer rematch repay retouch revenge reward rhythm ribcage
ringbolt robust rocker ruffled sailboat sawdust scallion scenic scorecard scotland seabird
select sentence shadow shamrock showgirl skullcap skydive slingshot slowdown snapline
snapshot snowcap snowslide solo southward soybean spaniel spearhead spellbind spheroid
spigot spindle spyglass stagehand stagnate stairway standard stapler steamship sterling
stockman stopwatch stormy sugar surmount suspense sweatband swelter tactics talon tapeworm
tempest tiger tissue tonic topmost tracker transit trauma treadmill trojan trouble tumor
tunnel tycoon uncut unearth unwind uproot upset upshot vapor village virus vulcan waffle
wallet watchword wayside willow woodlark zulu
"""
_ODD: Final = """
adroitness adviser aftermath aggregate alkali almighty amulet amusement antenna applicant
apollo armistice article asteroid atlantic atmosphere autopsy babylon backwater barbecue
belowground bifocals bodyguard bookseller borderline bottomless bradbury bravado brazilian
breakaway burlington businessman butterfat camelot candidate cannonball capricorn caravan
caretaker celebrate cellulose certify chambermaid cherokee chicago clergyman coherence
combustion commando company component concurrent confidence conformist congregate consensus
consulting corporate corrosion councilman crossover crucifix cumbersome customer dakota
decadence december decimal designing detector detergent determine dictator dinosaur
direction disable disbelief disruptive distortion document embezzle enchanting enrollment
enterprise equation equipment escapade eskimo everyday examine existence exodus fascinate
filament finicky forever fortitude frequency gadgetry galveston getaway glossary gossamer
graduate gravity guitarist hamburger hamilton handiwork hazardous headwaters hemisphere
hesitate hideaway holiness hurricane hydraulic impartial impetus inception indigo inertia
infancy inferno informant insincere insurgent integrate intention inventive istanbul jamaica
jupiter leprosy letterhead liberty maritime matchmaker maverick medusa megaton microscope
microwave midsummer millionaire miracle misnomer molasses molecule montana monument mosquito
narrative nebula newsletter norwegian october ohio onlooker opulent orlando outfielder
pacific pandemic pandora paperweight paragon paragraph paramount passenger pedigree pegasus
penetrate perceptive performance pharmacy phonetic photograph pioneer pocketful politeness
positive potato processor provincial proximate puberty publisher pyramid quantity racketeer
rebellion recipe recover repellent replica reproduce resistor responsive retraction
retrieval retrospect revenue revival revolver sandalwood sardonic saturday savagery
scavenger sensation sociable souvenir specialist speculate stethoscope stupendous supportive
surrender suspicious sympathy tambourine telephone therapist tobacco tolerance tomorrow
torpedo tradition travesty trombonist truncated typewriter ultimate undaunted underfoot
unicorn unify universe unravel upcoming vacancy vagabond vertigo virginia visitor vocalist
voyager warranty waterloo whimsical wichita wilmington wyoming yesteryear yucatan
"""
EVEN: Final = tuple(_EVEN.split())
ODD: Final = tuple(_ODD.split())

# Finding a key whose id has the same prefix takes 2 ** 80 attempts.
FINGERPRINT_SIZE: Final = 10  # bytes of a node id that are read aloud


def words_of(data: bytes) -> list[str]:
    """Return a word for each byte."""
    return [(ODD if place % 2 else EVEN)[byte] for place, byte in enumerate(data)]


def fingerprint(node_id: NodeId) -> str:
    """Return the first 10 bytes of a node ID as words, for people who compare IDs by voice.

    Programs must compare whole IDs instead.
    """
    return " ".join(words_of(node_id[:FINGERPRINT_SIZE]))


def in_two_lines(words: str, indent: str) -> str:
    """Split a fingerprint over two lines for a terminal, with the second line indented."""
    each = words.split()
    half = len(each) // 2
    return f"{' '.join(each[:half])}\n{indent}{' '.join(each[half:])}"
